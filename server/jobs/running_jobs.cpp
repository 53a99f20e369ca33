#include "server/jobs/running_jobs.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "api/job_spec_json.hpp"
#include "pipeline/async/failure_message.hpp"
#include "pipeline/async/run_on.hpp"
#include "server/jobs/event_records.hpp"
#include "server/support/log.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;

WorkerOutcome not_started(const char* code, std::string why) {
    WorkerOutcome outcome;
    outcome.kind = WorkerOutcome::Kind::not_started;
    outcome.reason = {code, std::move(why)};
    return outcome;
}

void log_failure(const std::exception_ptr& failure) {
    log::error("jobs", "unexpected: " + failure_message(failure));
}

}  // namespace

RunningJobs::RunningJobs(asio::any_io_executor executor, asio::any_io_executor disk, WorkerFactory make_worker,
                         const JobManagerOptions& options, JobJournal& journal, JobMetrics& metrics,
                         Callbacks callbacks)
    : executor_(std::move(executor)),
      disk_(std::move(disk)),
      make_worker_(std::move(make_worker)),
      options_(options),
      journal_(journal),
      metrics_(metrics),
      callbacks_(std::move(callbacks)),
      slots_(options.places.empty() ? shared_slots(options.slots) : options.places),
      runs_(executor_, {.on_failure = log_failure}) {
    metrics_.set_slots(slots_.busy(), slots_.free());
}

std::optional<WorkerOutcome> RunningJobs::start(const std::string& id, bool resume,
                                                const std::optional<MicroBatches>& cut) {
    WorkerStart start;
    start.resume = resume;
    start.job_id = id;
    std::uint32_t sequence_length = 0;
    bool newly_cut = false;
    std::unique_ptr<WorkerProcess> worker;
    try {
        start.spec_json = journal_.get(id).value().resolved_spec_json;
    } catch (const ErrorException& error) {
        return not_started("store_unavailable", error.what());
    }
    auto spec = api::parse_job_spec(start.spec_json);  // of one that cannot be read the worker says what is wrong
    if (spec) {
        sequence_length = spec->dataset.sequence_length;
        newly_cut = cut && *cut != MicroBatches{spec->training.batch_size, spec->training.micro_batches};
    }
    const Slot* slot = slots_.take(id);
    if (slot == nullptr) {
        return not_started(kWorkerNotStarted, "no slot is free");
    }
    try {
        worker = make_worker_(executor_, *slot);
    } catch (const std::exception& error) {
        slots_.release(id);
        return not_started(kWorkerNotStarted, std::string("no worker can be made: ") + error.what());
    }
    metrics_.set_slots(slots_.busy(), slots_.free());
    const auto active = std::make_shared<Active>(
        Active{std::move(worker), RunRecorder(id, sequence_length, options_.metrics_interval, journal_, metrics_)});
    auto& stored = journal_.edit(id);
    if (const auto submitted = api::parse_rfc3339(stored.job.created_at); submitted && stored.job.started_at.empty()) {
        const std::chrono::duration<double> waited = std::chrono::system_clock::now() - *submitted;
        metrics_.left_queue(std::max(0.0, waited.count()));  // the clock may have been set meanwhile
    }
    stored.job.state = api::JobState::running;
    stored.job.started_at = now_text();
    stored.job.slot = slot->number;
    stored.job.cores = slot->cores;
    stored.job.device = slot->device;
    if (auto& reason = stored.job.status_reason; reason && reason->since.empty()) {
        reason.reset();  // a wait is over when the worker has begun
    }
    active_[id] = active;
    if (stored.job.max_concurrent) {
        set_limit(id, *stored.job.max_concurrent);
    }
    metrics_.run_started(id);
    if (newly_cut) {
        start.spec_json = with_micro_batches(start.spec_json, *cut);
        journal_.set_resolved_spec(id, start.spec_json);
        metrics_.worker_oom_restarted();
    }
    journal_.append(id, state_record(stored.job));
    auto known = spec ? std::optional(*std::move(spec)) : std::nullopt;
    auto running = run_job(id, active, std::move(start), std::move(known));
    static_cast<void>(runs_.spawn(std::move(running)));  // closed only when none is started
    return std::nullopt;
}

void RunningJobs::stop(const std::string& id, LastCheckpoint last) {
    send(id, CancelCommand{last == LastCheckpoint::write});
}

void RunningJobs::checkpoint(const std::string& id) {
    send(id, CheckpointCommand{});
}

void RunningJobs::set_limit(const std::string& id, std::uint32_t max_concurrent) {
    send(id, SetLimitCommand{max_concurrent});
}

void RunningJobs::send(const std::string& id, const WorkerCommand& command) {
    if (const auto active = active_.find(id); active != active_.end()) {
        active->second->worker->send(command);
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

asio::awaitable<std::optional<FailedEvent>> RunningJobs::judge(JobSpec spec, WorkerStart& start) {
    struct Verdict {
        api::SpecViolations refused;
        std::optional<FileRule> files;
    };
    auto look = [&options = options_, spec = std::move(spec)] {
        return Verdict{options.admit_again ? options.admit_again(spec) : api::SpecViolations(),
                       options.files ? options.files(spec) : std::nullopt};
    };
    Verdict verdict = co_await run_on(disk_, std::move(look));
    if (const auto& violations = verdict.refused.violations; !violations.empty()) {
        co_return FailedEvent{violations.front().code, api::describe(verdict.refused)};
    }
    start.files = std::move(verdict.files);
    co_return std::nullopt;
}

asio::awaitable<void> RunningJobs::run_job(std::string id, std::shared_ptr<Active> active, WorkerStart start,
                                           std::optional<JobSpec> spec) {
    std::string trouble;
    try {
        const WorkerProcess::EventHandler on_event = [this, &active](const WorkerEvent& event) {
            active->run.handle(event, std::chrono::steady_clock::now());
            callbacks_.on_event(event);
        };
        std::optional<FailedEvent> refused;
        if (spec && (options_.admit_again || options_.files)) {
            refused = co_await judge(*std::move(spec), start);
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
    // Descriptors, processes, memory or the program were missing: none of it is for the job to mend.
    if (!trouble.empty() && !active->run.heard()) {
        outcome = not_started(kWorkerNotStarted, std::move(trouble));
    } else if (outcome.kind == WorkerOutcome::Kind::died && outcome.reason.message.empty()) {
        outcome.reason.message = std::move(trouble);
    }
    active_.erase(id);
    metrics_.run_ended(id);
    free_slot(id);
    callbacks_.on_ended(id, outcome);
}

void RunningJobs::free_slot(const std::string& id) {
    slots_.release(id);
    metrics_.set_slots(slots_.busy(), slots_.free());
    auto& job = journal_.edit(id).job;
    job.slot.reset();
    job.cores.clear();
    job.device.clear();
}

}  // namespace distilld
