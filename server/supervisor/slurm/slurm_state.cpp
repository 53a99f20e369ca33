#include "server/supervisor/slurm/slurm_state.hpp"

#include <algorithm>
#include <iterator>

#include "server/supervisor/worker_process.hpp"

namespace distilld::slurm {
namespace {

struct EndState {
    const char* state;  ///< squeue(1), JOB STATE CODES
    EndCause cause;
    const char* words;
};

constexpr EndState kEndStates[] = {
    {"BOOT_FAIL", EndCause::not_started, "could not start, because its node did not boot"},
    {"CANCELLED", EndCause::cancelled, "was cancelled"},
    {"COMPLETED", EndCause::worker, "has ended"},
    {"DEADLINE", EndCause::time_limit, "passed its deadline"},
    {"FAILED", EndCause::worker, "failed"},
    {"LAUNCH_FAILED", EndCause::not_started, "could not be started on its node"},
    {"NODE_FAIL", EndCause::node, "lost its node"},
    {"OUT_OF_MEMORY", EndCause::memory, "used more memory than it was given (placement.memory)"},
    {"PREEMPTED", EndCause::preempted, "was preempted"},
    {"REVOKED", EndCause::not_started, "was started by another cluster"},
    {"TIMEOUT", EndCause::time_limit, "reached its time limit"},
};

const EndState* find_end(std::string_view state) {
    const auto* const found = std::ranges::find(kEndStates, state, &EndState::state);
    return found == std::end(kEndStates) ? nullptr : found;
}

}  // namespace

const char* JobEnd::failure_kind() const {
    switch (cause) {
        case EndCause::memory:
            return kWorkerOutOfMemory;
        case EndCause::not_started:
            return kWorkerNotStarted;
        case EndCause::cancelled:
            return kWorkerCancelled;
        default:
            return kWorkerKilled;
    }
}

bool is_end(std::string_view state) {
    return find_end(state) != nullptr;
}

JobEnd end_of(std::uint64_t id, const std::optional<JobRecord>& record, const std::string& log) {
    const std::string job = "Slurm job " + std::to_string(id);
    const EndState* const state = record ? find_end(record->state) : nullptr;
    if (state == nullptr) {
        return {EndCause::worker, job + " has ended, and Slurm does not know it any more"};
    }
    JobEnd end{state->cause, job + " " + state->words};
    if (record->signal != 0 && end.cause == EndCause::worker) {
        end.words += " by signal " + std::to_string(record->signal);
    } else if (record->exit_code != 0 && end.cause != EndCause::cancelled) {
        end.words += " with exit code " + std::to_string(record->exit_code);
    }
    if (end.cause == EndCause::worker && !log.empty()) {
        end.words += "; its output is in " + log;
    }
    return end;
}

}  // namespace distilld::slurm
