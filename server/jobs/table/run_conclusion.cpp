#include "server/jobs/table/run_conclusion.hpp"

#include <string>
#include <utility>

namespace distilld {
namespace {

using api::JobState;
using api::StatusReason;
using Kind = WorkerOutcome::Kind;

constexpr const char* kWhole = "; the newest checkpoint is whole";
constexpr const char* kKilled = "the worker did not stop in time and was killed";

/// Its worker ended without a report, or for lack of memory.
bool was_killed(const WorkerOutcome& outcome) {
    return outcome.kind == Kind::died || outcome.kind == Kind::out_of_memory;
}

/// Of a worker that was to stop for a pause. Outside of the service, it may have been ended by the service itself
/// before a restart.
bool was_killed_in_pause(const WorkerOutcome& outcome) {
    return was_killed(outcome) || outcome.kind == Kind::cancelled_outside;
}

/// For a job that was not asked to end. nullopt: it is not over.
std::optional<Conclusion> conclude_run(const WorkerOutcome& outcome) {
    switch (outcome.kind) {
        case Kind::finished:
            return Conclusion{JobState::succeeded, std::nullopt};
        case Kind::failed:
            return Conclusion{JobState::failed, outcome.reason};
        case Kind::cancelled_outside:
            return Conclusion{JobState::cancelled, outcome.reason};
        case Kind::cancelled:  // by a signal to the worker, perhaps one that the service also gets
        case Kind::died:
        case Kind::out_of_memory:
        case Kind::not_started:
            break;
    }
    return std::nullopt;
}

Conclusion conclude_requeue(const WorkerOutcome& outcome) {
    // A worker's internal failure while the service ends (a signal to the whole group) does not fail the job.
    const bool inside = outcome.kind == Kind::failed && outcome.reason.code == "internal";
    if (const auto end = conclude_run(outcome); end && !inside) {
        return *end;
    }
    return {JobState::queued,
            StatusReason{"service_stopped", "the service stopped; the job resumes when the service starts again"}};
}

/// " after a checkpoint", or the alternative.
std::string with_what(const WantedOfRun& wanted, const WorkerOutcome& outcome) {
    if (outcome.checkpoint) {
        return " after a checkpoint";
    }
    return wanted.resumed ? " before another step was done" : " before a step was done";
}

Conclusion conclude_cancel(bool forced, const WantedOfRun& wanted, const WorkerOutcome& outcome) {
    if (outcome.kind == Kind::cancelled || outcome.kind == Kind::not_started) {
        const bool unsaved = wanted.skips_checkpoint && outcome.kind == Kind::cancelled;
        const auto what = unsaved ? " without a last checkpoint" : with_what(wanted, outcome);
        return {JobState::cancelled, StatusReason{"cancelled_by_user", "cancelled" + what}};
    }
    if (forced && outcome.kind != Kind::finished) {
        return {JobState::cancelled, StatusReason{"worker_killed", std::string(kKilled) + kWhole}};
    }
    if (was_killed(outcome)) {
        return {JobState::cancelled, StatusReason{"worker_killed", what_happened(outcome) + kWhole}};
    }
    return *conclude_run(outcome);
}

Conclusion conclude_pause(bool forced, const WantedOfRun& wanted, const WorkerOutcome& outcome) {
    if (forced && outcome.kind != Kind::finished && outcome.kind != Kind::cancelled) {
        return {JobState::paused, paused_reason(std::string(kKilled) + kWhole)};
    }
    if (was_killed_in_pause(outcome)) {
        return {JobState::paused, paused_reason(what_happened(outcome) + kWhole)};
    }
    if (const auto end = conclude_run(outcome)) {
        return *end;
    }
    return {JobState::paused, paused_reason("paused" + with_what(wanted, outcome))};
}

/// The pause was withdrawn.
Conclusion conclude_resume(bool forced, const WorkerOutcome& outcome) {
    const bool killed = forced || was_killed_in_pause(outcome);
    if (const auto end = conclude_run(outcome); end && (!killed || outcome.kind == Kind::finished)) {
        return *end;
    }
    return {JobState::queued, std::nullopt};
}

}  // namespace

std::optional<Conclusion> conclude(const WantedOfRun& wanted, const WorkerOutcome& outcome) {
    const bool forced = wanted.intent.phase == JobPhase::killed;
    switch (wanted.intent.wish) {
        case JobWish::cancel:
            return conclude_cancel(forced, wanted, outcome);
        case JobWish::requeue:
            return conclude_requeue(outcome);
        case JobWish::pause:
            return conclude_pause(forced, wanted, outcome);
        case JobWish::resume:
            return conclude_resume(forced, outcome);
        case JobWish::run:
            break;
    }
    return conclude_run(outcome);
}

std::string what_happened(const WorkerOutcome& outcome) {
    if (outcome.kind == Kind::cancelled) {
        return "the worker was stopped from outside the service";
    }
    return outcome.reason.message.empty() ? "the worker ended without a result" : outcome.reason.message;
}

StatusReason paused_reason(std::string message) {
    return {"paused_by_user", std::move(message)};
}

}  // namespace distilld
