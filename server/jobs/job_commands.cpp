#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <utility>

#include "api/job_spec_json.hpp"
#include "api/spec_paths.hpp"
#include "base/random_hex.hpp"
#include "server/jobs/awaited_stores.hpp"
#include "server/jobs/checks/named_files_check.hpp"
#include "server/jobs/checks/spec_claims.hpp"
#include "server/jobs/job_manager_core.hpp"
#include "server/jobs/store/event_records.hpp"
#include "server/jobs/task_array.hpp"
#include "server/support/log.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using std::chrono::steady_clock;

JobOutcome outcome_of(JobVerdict kind, api::SpecViolations violations = {}) {
    return {kind, {}, std::move(violations)};
}

api::SpecViolations array_has_ended(const std::string& first) {
    api::SpecViolations violations;
    violations.violations.push_back(
        {"/tasks", "conflict",
         "this is a task of job " + first + ", which has ended: resume that one, and its tasks resume with it"});
    return violations;
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
        prepared.claims = claims_now(*spec);
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
    if (prepared.spec && prepared.spec->tasks_auto) {
        const auto room = co_await asio::co_spawn(core_->io, core_->room(), asio::use_awaitable);
        if (!room) {
            log::error("jobs", "/tasks auto: " + room.error().message);
            co_return outcome_of(JobVerdict::nodes_unavailable);
        }
        JobSpec counted = *prepared.spec;
        counted.tasks = std::clamp(*room, 1U, kMaxTasks);
        counted.tasks_auto = false;
        prepared.spec = std::make_shared<const JobSpec>(std::move(counted));
    }
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
        submission.tasks = prepared.spec->tasks;
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
    StoredJob first = new_job(request, prepared.spec);
    first.job.id = request.id.empty() ? make_job_id() : request.id;
    auto jobs = with_its_tasks(std::move(first), make_job_id);
    std::vector<std::uint64_t> numbers;
    written([&] { numbers = journal.create_all(jobs); });
    show_counts();
    outcome.job = std::move(jobs.front().stored.job);
    submission.claims->array = array_of(outcome.job);
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        const auto& id = i == 0 ? outcome.job.id : jobs[i].stored.job.id;
        table.enqueue(id, *submission.claims, {outcome.job.priority, numbers[i]});
        if (jobs.size() > 1) {
            outcome.job.tasks.push_back(id);
        }
    }
    journal.live_jobs().change_queue(table.take_queue_changes());
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
    if (verdict == JobVerdict::accepted) {
        for (const auto& task : table.tasks_of(id)) {
            static_cast<void>(verb.ask(table, task, option, steady_clock::now()));
        }
    }
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
    if (!ended->task_of.empty() && !table.intent(ended->task_of)) {
        return outcome_of(JobVerdict::not_runnable, array_has_ended(ended->task_of));
    }
    const PathClaims claims{std::move(prepared.claims), ended->owner_id, false, array_of(*ended)};
    if (const auto taken = table.conflict(claims, id)) {
        return outcome_of(taken->ended ? JobVerdict::not_runnable : JobVerdict::output_in_use, claim_violation(*taken));
    }
    written([this] { journal.check_writable(); });
    revive_one(id, claims, std::move(prepared.spec));
    for (const auto& task : ended->tasks) {
        const auto other = task == id ? std::nullopt : journal.get(task);
        if (other && other->state != api::JobState::succeeded && api::is_terminal(other->state)) {
            revive_one(task, claims, stored_spec(other->resolved_spec_json));
        }
    }
    return outcome_of(JobVerdict::accepted);
}

void JobManager::Core::revive_one(const std::string& id, const PathClaims& claims,
                                  std::shared_ptr<const JobSpec> spec) {
    if (journal.revive(id, std::move(spec)) == nullptr) {
        return;
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
    const auto job = journal.get(id);
    if (!job) {
        return {};
    }
    JobOutcome outcome{JobVerdict::not_terminal};
    outcome.job.state = job->state;
    if (!api::is_terminal(job->state)) {
        return outcome;
    }
    outcome.job.tasks = job->tasks.empty() ? std::vector{id} : job->tasks;
    for (const auto& task : outcome.job.tasks) {
        if (table.intent(task)) {
            outcome.kind = JobVerdict::tasks_not_terminal;
            return outcome;
        }
    }
    written([&] { journal.remove(outcome.job.tasks); });
    for (const auto& task : outcome.job.tasks) {
        table.forget(task);
        log::info("jobs", task + " deleted");
    }
    if (table.intent(job->task_of)) {
        append(job->task_of,
               message_record("task " + std::to_string(job->task.value_or(0)) + " (" + id + ") was deleted"));
    }
    show_counts();
    outcome.kind = JobVerdict::accepted;
    return outcome;
}

}  // namespace distilld
