#include "server/jobs/checks/path_claims.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/files/file_patterns.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;
using api::PathUse;

/// The keys of what lies in a folder, and no others, begin with the folder's key.
std::string key_of(const fs::path& path) {
    std::string key = path.string();
    if (!key.ends_with('/')) {
        key += '/';
    }
    return key;
}

std::string place_of(const PathClaim& claim) {
    return claim.use == PathUse::reads ? key_of(fixed_part(claim.path)) : key_of(claim.path);
}

/// Whether a match of the pattern can be `path`, lie in it or contain it.
bool may_match(const fs::path& pattern, const fs::path& path) {
    auto part = path.begin();
    for (const fs::path& wanted : pattern) {
        if (part == path.end()) {
            break;
        }
        if (::fnmatch(wanted.c_str(), part->c_str(), FNM_PERIOD | FNM_NOESCAPE) != 0 && wanted != *part) {
            return false;
        }
        ++part;
    }
    return true;
}

}  // namespace

void ClaimTable::claim(const std::string& job, const PathClaims& claims) {
    drop(job);
    holders_[job] = Holder{claims.owner, claims.array, false, claims.paths};
    put(job, claims.paths);
}

void ClaimTable::end(const std::string& job) {
    const auto holder = holders_.find(job);
    if (holder == holders_.end()) {
        return;
    }
    Holder left = holder->second;
    drop(job);
    left.ended = true;
    std::erase_if(left.paths, [](const PathClaim& claim) { return claim.use == PathUse::reads; });
    put(job, left.paths);
    holders_[job] = std::move(left);
}

void ClaimTable::forget(const std::string& job) {
    drop(job);
}

std::vector<std::string> ClaimTable::makers(const std::string& path) const {
    std::vector<std::string> jobs;
    const auto [first, last] = held_places_.equal_range(key_of(path));
    for (auto place = first; place != last; ++place) {
        if (place->second.claim.is_output && !holders_.at(place->second.job).ended) {
            jobs.push_back(place->second.job);
        }
    }
    return jobs;
}

void ClaimTable::put(const std::string& job, const std::vector<PathClaim>& paths) {
    for (const PathClaim& claim : paths) {
        held_places_.emplace(place_of(claim), Held{job, claim});
    }
}

void ClaimTable::drop(const std::string& job) {
    const auto holder = holders_.find(job);
    if (holder == holders_.end()) {
        return;
    }
    for (const PathClaim& claim : holder->second.paths) {
        const auto [first, last] = held_places_.equal_range(place_of(claim));
        const auto held = std::find_if(
            first, last, [&](const auto& place) { return place.second.job == job && place.second.claim == claim; });
        if (held != last) {
            held_places_.erase(held);
        }
    }
    holders_.erase(holder);
}

template <class Visit>
bool ClaimTable::any_overlapping(const std::string& path, const Visit& visit) const {
    const std::string key = key_of(path);
    for (auto slash = key.find('/'); slash + 1 < key.size(); slash = key.find('/', slash + 1)) {
        const auto [first, last] = held_places_.equal_range(key.substr(0, slash + 1));
        if (std::any_of(first, last, [&visit](const auto& place) { return visit(place.second); })) {
            return true;
        }
    }
    for (auto place = held_places_.lower_bound(key); place != held_places_.end() && place->first.starts_with(key);
         ++place) {
        if (visit(place->second)) {
            return true;
        }
    }
    return false;
}

bool ClaimTable::is_maker(const std::string& owner, const PathClaim& place) const {
    const std::string key = place_of(place);
    return any_overlapping(key, [&](const Held& held) {
        return held.claim.use != PathUse::reads && holders_.at(held.job).owner == owner &&
               key.starts_with(place_of(held.claim));
    });
}

bool ClaimTable::stands_against(const Held& held, const PathClaim& wanted, const PathClaims& claims) const {
    const Holder& holder = holders_.at(held.job);
    const bool of_another = holder.owner != claims.owner && !claims.is_admin;
    if (wanted.use == PathUse::reads) {
        return false;
    }
    const bool both_share = held.claim.use == PathUse::shares && wanted.use == PathUse::shares;
    const bool one_array = !claims.array.empty() && claims.array == holder.array;
    const bool both_make = held.claim.is_output && wanted.is_output && !holder.ended && !one_array;
    if (both_share && held.claim.path == wanted.path && !both_make) {
        return false;
    }
    if (holder.ended) {
        return of_another && !is_maker(claims.owner, wanted);
    }
    if (held.claim.use == PathUse::reads) {
        return of_another && wanted.use == PathUse::writes && may_match(held.claim.path, wanted.path) &&
               !is_maker(claims.owner, held.claim);
    }
    return true;
}

std::optional<ClaimConflict> ClaimTable::conflict(const PathClaims& claims, const std::string& job) const {
    std::optional<ClaimConflict> found;
    for (const PathClaim& wanted : claims.paths) {
        if (wanted.use == PathUse::reads) {
            continue;
        }
        static_cast<void>(any_overlapping(wanted.path, [&](const Held& held) {
            if (held.job == job || !stands_against(held, wanted, claims)) {
                return false;
            }
            // A job that has not ended comes first: the client can wait for it.
            const bool ended = holders_.at(held.job).ended;
            if (!found || (found->ended && !ended)) {
                found = ClaimConflict{wanted, held.claim, held.job, ended};
            }
            return !ended;
        }));
        if (found && !found->ended) {
            break;
        }
    }
    return found;
}

}  // namespace distilld
