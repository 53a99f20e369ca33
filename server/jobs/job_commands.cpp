#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "api/job_spec_json.hpp"
#include "api/spec_paths.hpp"
#include "base/random_hex.hpp"
#include "server/jobs/checks/named_files_check.hpp"
#include "server/jobs/checks/spec_claims.hpp"
#include "server/jobs/job_manager_core.hpp"
#include "server/jobs/store/event_records.hpp"
#include "server/support/log.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using std::chrono::steady_clock;

JobOutcome outcome_of(JobVerdict kind, api::SpecViolations violations = {}) {
    return {kind, {}, std::move(violations)};
}

bool asks_endpoints(const JobSpec& spec) {
    return std::ranges::any_of(spec.teachers, [](const auto& teacher) { return !teacher.second.endpoints.empty(); });
}

/// `admit` is one of the two policies of the options. It does not judge `own_paths`, the pointers of what the service
/// has put into the spec. Blocks while patterns are matched: not for the manager's thread.
PreparedSpec prepare_spec(const std::string& spec_json, const JobManagerOptions& options, const SpecPolicy& policy,
                          LookInside look_inside, const std::vector<std::string>& own_paths = {}) {
    PreparedSpec prepared;
    auto spec = api::parse_job_spec(spec_json);
    if (!spec) {
        prepared.violations = spec.error();
        return prepared;
    }
    api::make_paths_absolute(*spec, options.working_directory);
    if (policy) {
        prepared.violations = policy(*spec);
        std::erase_if(prepared.violations.violations, [&](const api::Violation& one) {
            return std::ranges::find(own_paths, one.pointer) != own_paths.end();
        });
    }
    if (prepared.violations.violations.empty()) {
        prepared.claims = claims_of(*spec);
        const std::optional<FileRule> rule = options.files ? options.files(*spec) : std::nullopt;
        prepared.violations = check_named_files(*spec, look_inside, rule ? &*rule : nullptr);
    }
    prepared.spec = std::make_shared<const JobSpec>(*std::move(spec));
    return prepared;
}

/// Makes the job of a request: queued, without an id. `resolved` is the request's spec with absolute paths.
StoredJob new_job(const SubmitRequest& request, const std::shared_ptr<const JobSpec>& resolved) {
    const JobSpec& spec = *resolved;
    StoredJob stored;
    stored.spec = resolved;
    stored.idempotency_key = request.idempotency_key;
    stored.job.kind = spec.kind;
    if (request.owner) {
        stored.job.owner = request.owner->name;
        stored.job.owner_id = request.owner->id;
    }
    stored.job.metadata = request.metadata;
    stored.job.priority = request.priority;
    stored.job.name = spec.name;
    stored.job.created_at = now_text();
    stored.job.output = spec.output;
    stored.job.spec_json = request.spec_json;
    stored.job.resolved_spec_json = api::to_json(spec);
    stored.job.asked_json = request.asked_json;
    return stored;
}

/// The job submitted with the request's idempotency key within the last `lifetime`. A dry run has no key.
std::optional<StoredJob> earlier_job(const SubmitRequest& request, JobJournal& journal, std::chrono::hours lifetime) {
    if (request.idempotency_key.empty() || request.dry_run) {
        return std::nullopt;
    }
    const auto oldest = std::chrono::system_clock::now() - lifetime;
    return journal.find_by_key(request.idempotency_key, api::rfc3339(oldest));
}

/// Calls `ask` with the id on the manager's thread, carries out what follows, and answers with the job.
template <class Core, class Ask>
asio::awaitable<JobOutcome> asked(Core* core, std::string id, Ask ask) {
    return core->on_thread([core, id = std::move(id), ask = std::move(ask)]() mutable {
        JobOutcome outcome = ask(id);
        if (outcome.kind == JobVerdict::accepted) {
            core->pump();
        }
        if (auto job = core->journal.get(id)) {
            outcome.job = *std::move(job);
            core->journal.live_jobs().complete(outcome.job);
        }
        return outcome;
    });
}

}  // namespace

std::string make_job_id() {
    return "job-" + random_hex(3);
}

asio::awaitable<JobOutcome> JobManager::submit(SubmitRequest request) {
    auto preparing = run_on(core_->disk.get_executor(), [core = core_.get(), request] {
        return prepare_spec(request.spec_json, core->options, core->options.policy,
                            request.dry_run ? LookInside::yes : LookInside::no, request.own_paths);
    });
    auto prepared = co_await std::move(preparing);
    auto submitting =
        core_->on_thread([core = core_.get(), request = std::move(request), prepared = std::move(prepared)]() mutable {
            return core->submit(request, std::move(prepared));
        });
    co_return co_await std::move(submitting);
}

asio::awaitable<JobOutcome> JobManager::command(std::string id, JobVerb verb, bool option) {
    PreparedSpec prepared;
    if (verb.revives) {
        auto looking = core_->on_thread([core = core_.get(), id] { return core->spec_to_prepare(id); });
        if (const auto spec = co_await std::move(looking)) {
            auto preparing = run_on(core_->disk.get_executor(), [core = core_.get(), spec = *spec] {
                return prepare_spec(spec, core->options, core->options.start_policy, LookInside::no);
            });
            prepared = co_await std::move(preparing);
        }
    }
    auto asking =
        asked(core_.get(), std::move(id),
              [core = core_.get(), verb, option, prepared = std::move(prepared)](const std::string& job) mutable {
                  return core->command(job, verb, option, std::move(prepared));
              });
    co_return co_await std::move(asking);
}

asio::awaitable<JobOutcome> JobManager::change(std::string id, JobPatch patch) {
    return asked(core_.get(), std::move(id), [core = core_.get(), patch = std::move(patch)](const std::string& job) {
        return core->change(job, patch);
    });
}

asio::awaitable<JobOutcome> JobManager::remove(std::string id) {
    return core_->on_thread([core = core_.get(), id = std::move(id)] { return core->remove(id); });
}

/// Judges the request by the prepared spec and the existing jobs.
JobOutcome JobManager::Core::submit(const SubmitRequest& request, PreparedSpec prepared) {
    JobSubmission submission;
    submission.dry_run = request.dry_run;
    auto earlier = earlier_job(request, journal, options.idempotency_lifetime);
    if (earlier) {
        const auto& job = earlier->job;
        const bool asked = !request.asked_json.empty() || !job.asked_json.empty();
        submission.earlier = {asked ? job.asked_json == request.asked_json : job.spec_json == request.spec_json};
    }
    if (prepared.violations.violations.empty()) {
        const std::string owner = request.owner ? request.owner->id : std::string();
        submission.claims = {std::move(prepared.claims), owner, request.is_admin};
    }
    JobOutcome outcome;
    outcome.kind = table.judge(submission);
    if (outcome.kind == JobVerdict::existing) {
        outcome.job = std::move(earlier->job);
        journal.live_jobs().complete(outcome.job);
    } else if (outcome.kind == JobVerdict::invalid_spec) {
        outcome.violations = std::move(prepared.violations);
    } else if (outcome.kind == JobVerdict::output_in_use || outcome.kind == JobVerdict::not_yours) {
        outcome.violations = claim_violation(*table.conflict(*submission.claims));
    } else if (outcome.kind == JobVerdict::valid) {
        outcome.job = new_job(request, prepared.spec).job;
        outcome.spec = std::move(prepared.spec);
    }
    if (outcome.kind != JobVerdict::created) {
        return outcome;
    }
    StoredJob stored = new_job(request, prepared.spec);
    stored.job.id = request.id.empty() ? make_job_id() : request.id;
    written([&] { stored.number = journal.create(stored, {state_record(stored.job)}); });
    show_counts();
    table.enqueue(stored.job.id, *submission.claims, {stored.job.priority, stored.number});
    journal.live_jobs().change_queue(table.take_queue_changes());
    outcome.job = std::move(stored.job);
    journal.live_jobs().complete(outcome.job);
    // The answer says "queued" even if a slot is free.
    asio::post(io, [this] { pump(); });
    return outcome;
}

JobOutcome JobManager::Core::command(const std::string& id, const JobVerb& verb, bool option, PreparedSpec prepared) {
    if (verb.needs_checkpoints) {
        const auto state = journal.state_of(id);
        if (state && !api::is_terminal(*state) && journal.job(id).kind == JobKind::generate) {
            return outcome_of(JobVerdict::no_checkpoints);
        }
    }
    const auto verdict = verb.ask(table, id, option, steady_clock::now());
    if (verdict != JobVerdict::not_found) {
        return outcome_of(verdict);
    }
    if (verb.revives) {
        return revive(id, std::move(prepared));
    }
    return outcome_of(journal.state_of(id) ? verb.ended : JobVerdict::not_found);
}

std::optional<std::string> JobManager::Core::spec_to_prepare(const std::string& id) {
    if (table.intent(id)) {
        return std::nullopt;
    }
    auto job = journal.get(id);
    return job ? std::optional(std::move(job->resolved_spec_json)) : std::nullopt;
}

/// Resumes a job that has ended, as if it were submitted again in its old place.
JobOutcome JobManager::Core::revive(const std::string& id, PreparedSpec prepared) {
    const auto ended = journal.get(id);
    if (!ended) {
        return outcome_of(JobVerdict::not_found);
    }
    if (ended->state == api::JobState::succeeded) {
        return outcome_of(JobVerdict::terminal);
    }
    if (table.stopping()) {
        return outcome_of(JobVerdict::stopping);
    }
    if (!prepared.spec && prepared.violations.violations.empty()) {
        return outcome_of(JobVerdict::cancelling);  // it has only just ended
    }
    if (!prepared.violations.violations.empty()) {
        return outcome_of(JobVerdict::not_runnable, std::move(prepared.violations));
    }
    const PathClaims claims{std::move(prepared.claims), ended->owner};
    if (const auto taken = table.conflict(claims, id)) {
        return outcome_of(taken->ended ? JobVerdict::not_runnable : JobVerdict::output_in_use, claim_violation(*taken));
    }
    written([this] { journal.check_writable(); });
    if (journal.revive(id, std::move(prepared.spec)) == nullptr) {
        return outcome_of(JobVerdict::not_found);
    }
    auto& stored = journal.edit(id);
    stored.job.state = api::JobState::queued;
    stored.job.cancel_requested = false;
    stored.job.finished_at.clear();
    stored.job.status_reason.reset();
    stored.resume = true;
    const QueuePlace place{stored.job.priority, stored.number};
    const auto record = state_record(stored.job);
    append(id, message_record("resume requested"));
    append(id, record);
    show_counts();
    table.enqueue(id, claims, place, true);
    log::info("jobs", id + " is resumed");
    return outcome_of(JobVerdict::accepted);
}

JobOutcome JobManager::Core::change(const std::string& id, const JobPatch& patch) {
    const auto job = journal.get(id);
    if (!job) {
        return outcome_of(JobVerdict::not_found);
    }
    if (api::is_terminal(job->state) && (patch.priority || patch.max_concurrent)) {
        return outcome_of(JobVerdict::terminal);
    }
    auto metadata = patched_metadata(job->metadata, patch);
    if (!metadata) {
        return outcome_of(JobVerdict::invalid_change, metadata.error());
    }
    if (patch.max_concurrent) {
        const auto& spec = journal.spec(id);
        if (!spec || !asks_endpoints(*spec)) {
            return outcome_of(JobVerdict::no_remote_teacher);
        }
    }
    written([&] {
        journal.check_writable();
        if (patch.metadata && *metadata != job->metadata) {
            journal.set_metadata(id, *metadata);
        }
    });
    apply(id, patch);
    return outcome_of(JobVerdict::accepted);
}

/// Updates what the job itself remembers and what its worker must hear.
void JobManager::Core::apply(const std::string& id, const JobPatch& patch) {
    if (patch.priority && *patch.priority != journal.job(id).priority) {
        journal.edit(id).job.priority = *patch.priority;
        table.set_priority(id, *patch.priority);
        append(id, message_record("priority is " + std::to_string(*patch.priority) + " now"));
    }
    if (patch.max_concurrent && patch.max_concurrent != journal.job(id).max_concurrent) {
        journal.edit(id).job.max_concurrent = patch.max_concurrent;
        running.tell(id, SetLimitCommand{*patch.max_concurrent});
        append(id, message_record("max_concurrent is " + std::to_string(*patch.max_concurrent) + " now"));
    }
}

JobOutcome JobManager::Core::remove(const std::string& id) {
    const auto state = journal.state_of(id);
    if (!state) {
        return {};
    }
    if (!api::is_terminal(*state)) {
        JobOutcome refused{JobVerdict::not_terminal};
        refused.job.state = *state;
        return refused;
    }
    written([&] { journal.remove(id); });
    table.forget(id);
    log::info("jobs", id + " deleted");
    show_counts();
    return {JobVerdict::accepted};
}

}  // namespace distilld
