#include <algorithm>
#include <utility>

#include "server/jobs/table/job_table.hpp"

/// Jobs that wait for a store to begin, without a slot.
namespace distilld {
namespace {

using api::JobState;
using api::StatusReason;

}  // namespace

bool JobTable::on_sealed(const std::string& id) {
    const auto job = jobs_.find(id);
    if (job == jobs_.end() || std::exchange(job->second.sealed, true)) {
        return false;
    }
    release_held();
    return true;
}

std::optional<std::pair<std::string, std::string>> JobTable::awaited(Entries::iterator job) const {
    for (const PathClaim& claim : job->second.claims.paths) {
        if (!claim.is_awaited) {
            continue;
        }
        const auto makers = claims_.makers(claim.path);
        visited_ += makers.size();
        const auto has_sealed = [this](const std::string& maker) { return jobs_.at(maker).sealed; };
        if (!makers.empty() && std::ranges::none_of(makers, has_sealed)) {
            const auto& array = jobs_.at(makers.front()).claims.array;
            return std::pair{claim.path, array.empty() ? makers.front() : array};
        }
    }
    return std::nullopt;
}

void JobTable::hold(Entries::iterator job, const std::pair<std::string, std::string>& store_and_maker) {
    const auto& [store, maker] = store_and_maker;
    held_[job] = maker;
    StatusReason reason{kWaitingForStore, "job " + maker + " has not sealed a shard of " + store + " yet"};
    actions_.emplace_back(
        StoreStateAction{job->first, JobState::queued, std::move(reason), job->second.resume, /*waits=*/true});
}

void JobTable::release_held() {
    if (mode_ != Mode::started) {
        return;
    }
    const auto waiting = held_;
    for (const auto& [job, maker] : waiting) {
        ++visited_;
        const auto store = awaited(job);
        if (store && store->second != maker) {
            hold(job, *store);
        } else if (!store) {
            held_.erase(job);
            actions_.emplace_back(StoreStateAction{job->first, JobState::queued, std::nullopt, job->second.resume});
            insert_into_queue(job);
        }
    }
}

/// Call once: it looks at all.
void JobTable::hold_queued() {
    for (const auto& id : queue_.ids()) {
        const auto job = jobs_.find(id);
        if (const auto store = awaited(job)) {
            leave_queue(job);
            hold(job, *store);
        }
    }
}

}  // namespace distilld
