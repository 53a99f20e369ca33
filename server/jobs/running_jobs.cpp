#include "server/jobs/running_jobs.hpp"

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <ranges>
#include <utility>

#include "api/job_spec_json.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/async/tuple.hpp"
#include "server/jobs/store/event_records.hpp"
#include "server/jobs/store/journal_attempt.hpp"
#include "server/support/failure_logger.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;

WorkerOutcome not_started(const char* code, std::string why) {
    WorkerOutcome outcome;
    outcome.kind = WorkerOutcome::Kind::not_started;
    outcome.reason = {code, std::move(why)};
    return outcome;
}

void forget_attempt(StoredJob& stored) {
    stored.attempt_token.clear();
    stored.attempt_place.clear();
    stored.attempt_received = 0;
}

}  // namespace

RunningJobs::RunningJobs(asio::any_io_executor executor, asio::any_io_executor disk, Launcher& launcher,
                         const JobManagerOptions& options, JobJournal& journal, JobMetrics& metrics,
                         Callbacks callbacks)
    : executor_(std::move(executor)),
      disk_(std::move(disk)),
      launcher_(launcher),
      options_(options),
      journal_(journal),
      metrics_(metrics),
      callbacks_(std::move(callbacks)),
      slots_(options.slot_layout.empty() ? shared_slots(options.slots) : options.slot_layout),
      runs_(executor_, {.on_failure = failure_logger("jobs")}) {
    show_slots();
}

WorkerStart RunningJobs::order_of(const std::string& id, bool resume) {
    WorkerStart start;
    start.resume = resume;
    start.job_id = id;
    start.task = journal_.job(id).task.value_or(0);
    start.spec_json = journal_.get(id).value().resolved_spec_json;
    start.spec = journal_.spec(id);  // if it is not valid, the worker says why
    return start;
}

std::optional<WorkerOutcome> RunningJobs::make_active(const WorkerStart& start, bool adopted) {
    const Slot* slot = slots_.take(start.job_id);
    if (slot == nullptr) {
        return not_started(kWorkerNotStarted, "no slot is free");
    }
    const JobAttempt attempt{start.job_id, start.attempt};
    const Attempt wanted{start.job_id, *slot, start.attempt, start.spec, make_attempt_record(journal_, attempt)};
    std::unique_ptr<WorkerProcess> worker;
    try {
        worker = adopted ? launcher_.adopt(executor_, wanted) : launcher_.make(executor_, wanted);
    } catch (const std::exception& error) {
        slots_.release(start.job_id);
        return not_started(kWorkerNotStarted, std::string("no worker can be made: ") + error.what());
    }
    show_slots();
    auto& job = journal_.edit(start.job_id).job;
    job.slot = slot->number;
    job.cores = slot->cores;
    job.device = slot->device;
    const std::uint32_t sequence_length = start.spec ? start.spec->dataset.sequence_length : 0;
    active_[start.job_id] = std::make_shared<Active>(Active{
        std::move(worker), RunRecorder(attempt, sequence_length, options_.metrics_interval, journal_, metrics_)});
    metrics_.run_started(start.job_id);
    return std::nullopt;
}

std::optional<WorkerOutcome> RunningJobs::start(const std::string& id, bool resume,
                                                const std::optional<MicroBatches>& split) {
    WorkerStart start;
    try {
        start = order_of(id, resume);
    } catch (const ErrorException& error) {
        return not_started("store_unavailable", error.what());
    }
    bool newly_split = false;
    if (start.spec) {
        const TrainingSpec& training = start.spec->training;
        newly_split = split && *split != MicroBatches{training.batch_size, training.micro_batches};
    }
    start.attempt = journal_.job(id).attempt + 1;
    if (auto failed = make_active(start, false)) {
        return failed;
    }
    auto& stored = journal_.edit(id);
    if (const auto submitted = api::parse_rfc3339(stored.job.created_at); submitted && stored.job.started_at.empty()) {
        const std::chrono::duration<double> waited = std::chrono::system_clock::now() - *submitted;
        metrics_.update([&waited](ServiceCounts& counts) {
            counts.queue_waits.observe(std::max(0.0, waited.count()));  // the clock may have been changed meanwhile
        });
    }
    stored.job.state = api::JobState::running;
    stored.job.attempt = start.attempt;
    stored.job.started_at = now_text();
    forget_attempt(stored);  // an earlier one may not have been ended by us
    if (auto& reason = stored.job.status_reason; reason && reason->since.empty()) {
        reason.reset();  // a wait is over when the worker has begun
    }
    if (stored.job.max_concurrent) {
        tell(id, SetLimitCommand{*stored.job.max_concurrent});
    }
    if (newly_split) {
        take_micro_batches(start, *split);
        journal_.set_resolved_spec(id, start.spec_json, start.spec);
        metrics_.update([](ServiceCounts& counts) { ++counts.worker_oom_restarts; });
    }
    journal_.append(id, state_record(stored.job));
    auto running = run_job(id, active_.at(id), std::move(start));
    static_cast<void>(runs_.spawn(std::move(running)));  // closed only when none is started
    return std::nullopt;
}

std::optional<WorkerOutcome> RunningJobs::adopt(const std::string& id) {
    WorkerStart start;
    try {
        start = order_of(id, journal_.stored(id).resume);
    } catch (const ErrorException& error) {
        return not_started("store_unavailable", error.what());
    }
    start.attempt = journal_.job(id).attempt;
    if (auto failed = make_active(start, true)) {
        return failed;
    }
    if (const auto limit = journal_.job(id).max_concurrent) {
        tell(id, SetLimitCommand{*limit});
    }
    auto running = run_job(id, active_.at(id), std::move(start));
    static_cast<void>(runs_.spawn(std::move(running)));
    return std::nullopt;
}

std::vector<std::string> RunningJobs::ids() const {
    const auto ids = std::views::keys(active_);
    return {ids.begin(), ids.end()};
}

void RunningJobs::tell(const std::string& id, const WorkerCommand& order) {
    if (const auto active = active_.find(id); active != active_.end()) {
        active->second->worker->send(order);
    }
}

void RunningJobs::kill(const std::string& id) {
    if (const auto active = active_.find(id); active != active_.end()) {
        active->second->worker->kill();
    }
}

void RunningJobs::kill_all() {
    for (auto& [id, active] : active_) {
        active->worker->kill();
    }
}

asio::awaitable<void> RunningJobs::join() {
    co_await runs_.join();
}

asio::awaitable<std::optional<FailedEvent>> RunningJobs::judge(WorkerStart& start) {
    struct Verdict {
        api::SpecViolations refused;
        std::optional<FileRule> files;
    };
    auto look = [&options = options_, spec = start.spec] {
        return Verdict{options.start_policy ? options.start_policy(*spec) : api::SpecViolations(),
                       options.files ? options.files(*spec) : std::nullopt};
    };
    Verdict verdict = co_await run_on(disk_, std::move(look));
    if (const auto& violations = verdict.refused.violations; !violations.empty()) {
        co_return FailedEvent{violations.front().code, api::describe(verdict.refused)};
    }
    start.files = std::move(verdict.files);
    co_return std::nullopt;
}

asio::awaitable<void> RunningJobs::run_job(std::string id, std::shared_ptr<Active> active, WorkerStart start) {
    std::string trouble;
    try {
        const WorkerProcess::EventHandler on_event = [this, &id, &active](const WorkerEvent& event) {
            if (active->run.handle(event, std::chrono::steady_clock::now())) {
                callbacks_.on_event(id, event);
            }
        };
        std::optional<FailedEvent> refused;
        if (start.spec && (options_.start_policy || options_.files)) {
            refused = co_await judge(start);
        }
        if (refused) {
            on_event(*refused);
        } else if (auto ended = co_await active->worker->run(std::move(start), on_event); !ended) {
            trouble = ended.error().message;
        }
    } catch (const std::exception& error) {
        trouble = error.what();
    }
    auto outcome = active->run.outcome();
    // Descriptors, processes, memory or the program were missing: nothing that the job could fix.
    if (!trouble.empty() && !active->run.heard()) {
        outcome = not_started(kWorkerNotStarted, std::move(trouble));
    } else if (outcome.kind == WorkerOutcome::Kind::died && outcome.reason.message.empty()) {
        outcome.reason.message = std::move(trouble);
    }
    if (!active->run.is_current()) {
        journal_.release(id);
        co_return;  // the job has another worker by now, or has ended
    }
    active_.erase(id);
    metrics_.run_ended(id);
    free_slot(id);
    callbacks_.on_ended(id, outcome);
    journal_.release(id);  // a remote worker's last event, and what became of the job
    // That must be on disk before the worker's relay is told that all is over.
    asio::steady_timer pause(executor_);
    while (launcher_.outlives_service() && !journal_.is_saved(id)) {
        pause.expires_after(options_.store_retry);
        co_await pause.async_wait(kTuple);
    }
}

void RunningJobs::show_slots() {
    metrics_.update(
        [this](ServiceCounts& counts) { counts.slots = {{"busy", slots_.busy()}, {"free", slots_.free()}}; });
}

void RunningJobs::free_slot(const std::string& id) {
    slots_.release(id);
    show_slots();
    auto& job = journal_.edit(id).job;
    job.slot.reset();
    job.cores.clear();
    job.device.clear();
    forget_attempt(journal_.edit(id));
}

}  // namespace distilld
