#include <algorithm>
#include <utility>

#include "server/jobs/table/job_table.hpp"

/// The ends of jobs, and what they mean for the other tasks of an array.
namespace distilld {
namespace {

using api::JobState;
using api::StatusReason;

}  // namespace

void JobTable::join_array(Entries::iterator job) {
    if (const auto& array = job->second.claims.array; !array.empty()) {
        arrays_[array].insert(job->first);
    }
}

std::vector<std::string> JobTable::tasks_of(const std::string& id) const {
    std::vector<std::string> others;
    if (const auto array = arrays_.find(id); array != arrays_.end()) {
        others.assign(array->second.begin(), array->second.end());
        std::erase(others, id);
    }
    return others;
}

void JobTable::end(Entries::iterator job, JobState state, std::optional<StatusReason> reason, Time now) {
    const auto others = tasks_of(job->first);
    const StatusReason why = reason.value_or(StatusReason{"array_ended", "the store is complete"});
    actions_.emplace_back(StoreStateAction{job->first, state, std::move(reason)});
    if (job->second.begun) {
        claims_.end(job->first);
    } else {
        claims_.forget(job->first);
    }
    if (const auto array = arrays_.find(job->second.claims.array); array != arrays_.end()) {
        array->second.erase(job->first);
        if (array->second.empty()) {
            arrays_.erase(array);
        }
    }
    const bool made_a_store = std::ranges::any_of(job->second.claims.paths, &PathClaim::is_output);
    jobs_.erase(job);
    if (made_a_store) {
        release_held();
    }
    for (const auto& other : others) {
        ++visited_;
        end_with_first(jobs_.find(other), state, why, now);
    }
}

void JobTable::end_with_first(Entries::iterator job, JobState state, const StatusReason& reason, Time now) {
    const bool cancelled = state == JobState::cancelled;
    const std::string how = std::string(cancelled ? "was " : "has ") + api::to_string(state);
    const StatusReason why{cancelled ? reason.code : "array_ended",
                           "task 0 (" + job->second.claims.array + ") " + how + ": " + reason.message};
    if (const auto phase = job->second.intent.phase; phase == JobPhase::waiting || phase == JobPhase::resting) {
        leave_queue(job);
        end(job, state == JobState::succeeded ? JobState::succeeded : JobState::cancelled, why, now);
    } else if (state != JobState::succeeded && job->second.intent.wish != JobWish::cancel) {
        job->second.ended_with = why;
        cancel(job->first, now);
    }
}

}  // namespace distilld
