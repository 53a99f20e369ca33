#include "server/jobs/job_verbs.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "api/job_spec_json.hpp"
#include "server/jobs/event_records.hpp"
#include "server/jobs/new_job.hpp"
#include "server/jobs/submission.hpp"
#include "server/support/log.hpp"

namespace distilld {
namespace {

using std::chrono::steady_clock;

JobOutcome outcome(JobVerdict kind, api::SpecViolations violations = {}) {
    return {kind, {}, std::move(violations)};
}

bool asks_endpoints(const JobSpec& spec) {
    const bool one = spec.teacher && !spec.teacher->endpoints.empty();
    return one || std::any_of(spec.teachers.begin(), spec.teachers.end(),
                              [](const auto& teacher) { return !teacher.second.endpoints.empty(); });
}

}  // namespace

JobOutcome JobVerbs::cancel(const std::string& id, LastCheckpoint last) {
    const bool here = parts_.table.cancel(id, steady_clock::now(), last);
    return outcome_of(here ? JobVerdict::accepted : JobVerdict::not_found, id);
}

JobOutcome JobVerbs::pause(const std::string& id) {
    return outcome_of(parts_.table.pause(id, steady_clock::now()), id);
}

std::optional<std::string> JobVerbs::spec_to_prepare(const std::string& id) {
    if (parts_.table.intent(id)) {
        return std::nullopt;
    }
    auto job = parts_.journal.get(id);
    return job ? std::optional(std::move(job->resolved_spec_json)) : std::nullopt;
}

JobOutcome JobVerbs::resume(const std::string& id, PreparedSpec prepared) {
    const auto verdict = parts_.table.resume(id);
    return verdict == JobVerdict::not_found ? revive(id, std::move(prepared)) : outcome_of(verdict, id);
}

JobOutcome JobVerbs::checkpoint(const std::string& id) {
    const auto state = parts_.journal.state_of(id);
    if (!state) {
        return outcome(JobVerdict::not_found);
    }
    if (!api::is_terminal(*state) && parts_.journal.job(id).kind == JobKind::generate) {
        return outcome(JobVerdict::no_checkpoints);
    }
    const auto verdict = parts_.table.checkpoint(id);
    return verdict == JobVerdict::not_found ? outcome(JobVerdict::not_running) : outcome_of(verdict, id);
}

JobOutcome JobVerbs::change(const std::string& id, const JobPatch& patch) {
    const auto job = parts_.journal.get(id);
    if (!job) {
        return outcome(JobVerdict::not_found);
    }
    if (api::is_terminal(job->state) && (patch.priority || patch.max_concurrent)) {
        return outcome(JobVerdict::terminal);
    }
    auto metadata = patched_metadata(job->metadata, patch);
    if (!metadata) {
        return outcome(JobVerdict::invalid_change, metadata.error());
    }
    if (patch.max_concurrent) {
        const auto spec = api::parse_job_spec(job->resolved_spec_json);
        if (!spec || !asks_endpoints(*spec)) {
            return outcome(JobVerdict::no_remote_teacher);
        }
    }
    parts_.keeper.written([&] {
        parts_.journal.check_writable();
        if (patch.metadata && *metadata != job->metadata) {
            parts_.journal.set_metadata(id, *metadata);
        }
    });
    apply(id, patch);
    return outcome(JobVerdict::accepted);
}

/// What is the job's own to remember, and what its worker is to hear of it.
void JobVerbs::apply(const std::string& id, const JobPatch& patch) {
    if (patch.priority && *patch.priority != parts_.journal.job(id).priority) {
        parts_.journal.edit(id).job.priority = *patch.priority;
        parts_.table.set_priority(id, *patch.priority);
        parts_.keeper.append(id, message_record("priority is " + std::to_string(*patch.priority) + " now"));
    }
    if (patch.max_concurrent && patch.max_concurrent != parts_.journal.job(id).max_concurrent) {
        parts_.journal.edit(id).job.max_concurrent = patch.max_concurrent;
        parts_.running.set_limit(id, *patch.max_concurrent);
        parts_.keeper.append(id, message_record("max_concurrent is " + std::to_string(*patch.max_concurrent) + " now"));
    }
}

JobOutcome JobVerbs::outcome_of(JobVerdict verdict, const std::string& id) {
    const bool has_ended = verdict == JobVerdict::not_found && parts_.journal.state_of(id);
    return outcome(has_ended ? JobVerdict::terminal : verdict);
}

/// A job that has ended goes on, as if it were submitted again where it was.
JobOutcome JobVerbs::revive(const std::string& id, PreparedSpec prepared) {
    const auto ended = parts_.journal.get(id);
    if (!ended) {
        return outcome(JobVerdict::not_found);
    }
    if (ended->state == api::JobState::succeeded) {
        return outcome(JobVerdict::terminal);
    }
    if (parts_.table.stopping()) {
        return outcome(JobVerdict::stopping);
    }
    if (!prepared.spec && prepared.violations.violations.empty()) {
        return outcome(JobVerdict::cancelling);  // it has only just ended
    }
    if (!prepared.violations.violations.empty()) {
        return outcome(JobVerdict::not_runnable, std::move(prepared.violations));
    }
    const PathClaims claims{std::move(prepared.claims), ended->owner};
    if (const auto taken = parts_.table.conflict(claims, id)) {
        return outcome(taken->ended ? JobVerdict::not_runnable : JobVerdict::output_in_use, claim_violation(*taken));
    }
    parts_.keeper.written([&] { parts_.journal.check_writable(); });
    if (parts_.journal.revive(id) == nullptr) {
        return outcome(JobVerdict::not_found);
    }
    auto& stored = parts_.journal.edit(id);
    stored.job.state = api::JobState::queued;
    stored.job.cancel_requested = false;
    stored.job.finished_at.clear();
    stored.job.status_reason.reset();
    stored.resume = true;
    const QueuePlace place{stored.job.priority, stored.number};
    const auto record = state_record(stored.job);
    parts_.keeper.append(id, message_record("resume requested"));
    parts_.keeper.append(id, record);
    parts_.keeper.show_counts();
    parts_.table.enqueue(id, claims, place, true);
    log::info("jobs", id + " is resumed");
    return outcome(JobVerdict::accepted);
}

}  // namespace distilld
