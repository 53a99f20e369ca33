#include "server/jobs/action_performer.hpp"

#include <chrono>
#include <string>
#include <utility>
#include <variant>

#include "api/job_spec_json.hpp"
#include "base/error.hpp"
#include "server/jobs/event_records.hpp"
#include "server/jobs/new_job.hpp"
#include "server/support/log.hpp"

namespace distilld {
namespace {

constexpr const char* kComponent = "jobs";

}  // namespace

void ActionPerformer::perform(const JobAction& action) {
    std::visit([this](const auto& it) { on(it); }, action);
}

void ActionPerformer::on(const StartWorkerAction& action) {
    auto outcome = kept_from_its_places(action.id);
    if (!outcome) {
        outcome = parts_.running.start(action.id, action.resume, action.cut);
    }
    if (outcome) {
        parts_.table.on_ended(action.id, *outcome, std::chrono::steady_clock::now());
    }
    parts_.keeper.saved_or_retried();
    parts_.keeper.show_counts();
}

std::optional<WorkerOutcome> ActionPerformer::kept_from_its_places(const std::string& id) {
    std::optional<api::Job> job;
    try {
        job = parts_.journal.get(id);
    } catch (const ErrorException&) {
        return std::nullopt;  // RunningJobs finds out as well, and says so
    }
    const auto taken =
        job ? parts_.table.claim_again(id, claims_of_stored(*job).paths) : std::optional<ClaimConflict>();
    if (!taken) {
        return std::nullopt;
    }
    WorkerOutcome outcome;
    outcome.kind = WorkerOutcome::Kind::failed;
    outcome.reason = {"invalid_input", api::describe(claim_violation(*taken))};
    return outcome;
}

void ActionPerformer::on(const StopWorkerAction& action) {
    parts_.running.stop(action.id, action.last);
}

void ActionPerformer::on(const CheckpointWorkerAction& action) {
    parts_.running.checkpoint(action.id);
}

void ActionPerformer::on(const KillWorkerAction& action) {
    parts_.running.kill(action.id);
}

void ActionPerformer::on(const StoreStateAction& action) {
    auto& stored = parts_.journal.edit(action.id);
    auto reason = action.reason;
    if (reason && action.waits) {
        // The same wait, if it was not over in between.
        const auto& before = stored.job.status_reason;
        reason->since = before && before->code == reason->code && !before->since.empty() ? before->since : now_text();
        log::warn(kComponent, action.id + " waits: " + reason->message);
    }
    if (reason && reason->code == kWorkerRestarting) {
        parts_.metrics.worker_restarted();
    }
    stored.job.state = action.state;
    stored.job.status_reason = std::move(reason);
    stored.resume = action.resume;
    if (api::is_terminal(action.state)) {
        stored.job.finished_at = now_text();
        parts_.metrics.job_finished(action.state);
        log::info(kComponent, action.id + " " + api::to_string(action.state) +
                                  (action.reason ? ": " + action.reason->message : std::string()));
    }
    parts_.keeper.append(action.id, state_record(stored.job));
    parts_.keeper.show_counts();
}

void ActionPerformer::on(const StoreCancelRequestAction& action) {
    parts_.journal.edit(action.id).job.cancel_requested = true;
    parts_.keeper.append(action.id, message_record("cancellation requested"));
}

void ActionPerformer::on(const StoreNoteAction& action) {
    parts_.keeper.append(action.id, message_record(action.message));
}

void ActionPerformer::on(const WakeReadersAction& /*action*/) {
    parts_.waiters.wake_all();
}

}  // namespace distilld
