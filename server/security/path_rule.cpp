#include "server/security/path_rule.hpp"

#include <algorithm>
#include <deque>
#include <iterator>
#include <system_error>
#include <utility>

#include "api/spec_fields.hpp"
#include "api/spec_paths.hpp"
#include "base/file_patterns.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;  // as the kernel has it
constexpr std::string_view kOwnFiles[] = {"keys.", "jobs.sqlite", "audit.jsonl", "lock", "logs", "files"};

bool is_below(const fs::path& path, const fs::path& root) {
    return std::mismatch(root.begin(), root.end(), path.begin(), path.end()).first == root.end();
}

/// The data folder itself, or one of the files that the service keeps in it.
bool is_own(const fs::path& path, const fs::path& data_dir) {
    if (!is_below(path, data_dir)) {
        return false;
    }
    auto rest = path.begin();
    std::advance(rest, std::distance(data_dir.begin(), data_dir.end()));
    if (rest == path.end()) {
        return true;
    }
    const std::string name = rest->string();
    return std::ranges::any_of(kOwnFiles, [&name](std::string_view own) {
        return name == own ||
               (name.starts_with(own) && (own.ends_with('.') || own.find('.') != std::string_view::npos));
    });
}

std::vector<fs::path> resolved(const std::vector<fs::path>& roots) {
    std::vector<fs::path> found;
    for (const fs::path& root : roots) {
        if (auto there = resolved_path(fs::absolute(root))) {
            found.push_back(*std::move(there));
        }
    }
    return found;
}

std::string listed(const std::vector<fs::path>& roots) {
    std::string text;
    for (const fs::path& root : roots) {
        text += (text.empty() ? "" : ", ") + root.string();
    }
    return text.empty() ? "none" : text;
}

}  // namespace

std::optional<fs::path> resolved_path(const fs::path& path) {
    std::deque<fs::path> left(path.begin(), path.end());
    fs::path at = "/";
    int links = 0;
    while (!left.empty()) {
        const fs::path part = std::move(left.front());
        left.pop_front();
        if (part.empty() || part == "." || part == "/") {
            continue;
        }
        if (part == "..") {
            at = at.parent_path();
            continue;
        }
        const fs::path next = at / part;
        std::error_code failed;
        const auto type = fs::symlink_status(next, failed).type();
        if (type == fs::file_type::none) {
            return std::nullopt;
        }
        if (type != fs::file_type::symlink) {
            at = next;
            continue;
        }
        const fs::path target = fs::read_symlink(next, failed);
        if (failed || ++links > kMaxLinks) {
            return std::nullopt;
        }
        if (target.is_absolute()) {
            at = "/";
        }
        left.insert(left.begin(), target.begin(), target.end());
    }
    return at;
}

bool PathRule::is_given(const fs::path& path) const {
    const auto place = resolved_path(path);
    return place && std::ranges::any_of(options_.given, [&](const fs::path& folder) {
               const auto there = resolved_path(fs::absolute(folder));
               return is_below(path.lexically_normal(), fs::absolute(folder).lexically_normal()) && there &&
                      is_below(*place, *there);
           });
}

std::string PathRule::complaint_of_place(const std::string& path, const fs::path& meant, const Grounds& grounds) const {
    const auto place = resolved_path(meant);
    const auto holds = [&place](const fs::path& folder) { return is_below(*place, folder); };
    if (!place || std::ranges::none_of(grounds.roots, holds)) {
        // Where a link leads is not told: whoever may not go there need not know what is there.
        return "'" + path +
               "' is not below a folder that specs may name (distilld serve --root): " + listed(grounds.roots);
    }
    if (grounds.home && is_own(*place, *grounds.home)) {
        return "'" + path + "' is a file of the service itself";
    }
    return {};
}

std::string PathRule::complaint_of_written(const std::string& path, const Grounds& grounds) const {
    const auto place = resolved_path(path);
    const auto lies_in_it = [&place](const fs::path& folder) { return place && is_below(folder, *place); };
    if (std::ranges::any_of(grounds.kept, lies_in_it)) {
        return "'" + path +
               "' is a folder in which files of others lie, or is above one (--root and --data-dir of distilld serve): "
               "name a folder of the job's own below it";
    }
    return {};
}

std::string PathRule::complaint(const std::string& path, api::PathUse use, Grounds& grounds) const {
    if (is_given(path)) {
        return {};
    }
    // The fixed part first: nothing is searched for elsewhere.
    auto why = complaint_of_place(path, use == api::PathUse::reads ? fixed_part(path) : fs::path(path), grounds);
    if (why.empty() && use != api::PathUse::reads) {
        why = complaint_of_written(path, grounds);
    }
    if (!why.empty() || use != api::PathUse::reads || !looks_like_pattern(path)) {
        return why;
    }
    auto matches = files_matching(path, grounds.budget);
    if (!matches) {
        return matches.error().kind == ErrorKind::invalid_input ? matches.error().message : std::string();
    }
    matches->push_back(path);  // a file may be called so
    for (auto match = matches->begin(); why.empty() && match != matches->end(); ++match) {
        why = complaint_of_place(path, *match, grounds);
    }
    return why;
}

api::SpecViolations PathRule::check(const JobSpec& spec) const {
    api::SpecViolations found;
    if (options_.roots.empty() && (!options_.needed || !options_.needed())) {
        return found;
    }
    Grounds grounds;
    grounds.roots = resolved(options_.roots.empty() ? options_.otherwise : options_.roots);
    grounds.kept = grounds.roots;
    if (!options_.data_dir.empty()) {
        grounds.home = resolved_path(fs::absolute(options_.data_dir));
        std::ranges::move(resolved({options_.data_dir}), std::back_inserter(grounds.kept));
    }
    std::ranges::move(resolved(options_.shared), std::back_inserter(grounds.kept));
    api::each_path(spec, api::spec_table(), [&](const api::NamedPath& named) {
        auto why = complaint(named.path, named.use, grounds);
        if (!why.empty()) {
            found.violations.push_back({named.pointer, "path_not_allowed", std::move(why)});
        }
    });
    return found;
}

}  // namespace distilld
