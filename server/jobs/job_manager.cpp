#include "server/jobs/job_manager.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <thread>
#include <utility>

#include "api/spec_paths.hpp"
#include "pipeline/async/failure_message.hpp"
#include "pipeline/async/run_on.hpp"
#include "server/jobs/event_records.hpp"
#include "server/jobs/event_waiters.hpp"
#include "server/jobs/job_journal.hpp"
#include "server/jobs/job_table.hpp"
#include "server/jobs/job_views.hpp"
#include "server/jobs/named_files_check.hpp"
#include "server/jobs/new_job.hpp"
#include "server/jobs/running_jobs.hpp"
#include "server/support/log.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using api::JobState;
using std::chrono::steady_clock;

constexpr const char* kComponent = "jobs";

void log_failure(const std::exception_ptr& failure) {
    log::error(kComponent, "unexpected: " + failure_message(failure));
}

/// Carries out what the JobTable says. All members but the constants belong to the manager's thread.
class ThreadedJobManager final : public JobManager {
  public:
    ThreadedJobManager(JobManagerOptions options, std::unique_ptr<JobStore> store, WorkerFactory make_worker,
                       std::shared_ptr<JobMetrics> metrics)
        : options_(std::move(options)),
          journal_(std::move(store), options_.metrics_kept, [this](const std::string& id) { waiters_.wake(id); }),
          metrics_(std::move(metrics)),
          views_(journal_.open_reader(), journal_.open_reader(), journal_.board()),
          table_({options_.slots, options_.cancel_grace, options_.restarts, options_.max_queued}),
          work_(asio::make_work_guard(io_)),
          waiters_(io_.get_executor()),
          running_(io_.get_executor(), std::move(make_worker), options_.metrics_interval, journal_, *metrics_,
                   {[this](const WorkerEvent& event) { on_event(event); },
                    [this](const std::string& id, const WorkerOutcome& outcome) { on_ended(id, outcome); }}),
          wakeup_(io_),
          retry_(io_),
          thread_([this] { run_thread(); }) {}

    ~ThreadedJobManager() override {
        asio::post(io_, [this] {
            running_.kill_all();
            io_.stop();
        });
        thread_.join();
        running_.clear();
    }

    asio::awaitable<void> start() override {
        return on_thread([this] { start_now(); });
    }

    asio::awaitable<void> stop() override {
        auto task = stop_now();
        co_await asio::co_spawn(io_, std::move(task), asio::use_awaitable);
    }

    asio::awaitable<bool> ready() override {
        return on_thread([this] { return ready_now(); });
    }

    asio::awaitable<SubmitOutcome> submit(SubmitRequest request) override {
        return on_thread([this, request = std::move(request)] { return submit_now(request); });
    }

    std::optional<api::StatusReason> store_trouble() const override { return journal_.board().trouble(); }

    asio::awaitable<std::optional<api::Job>> get(std::string id) override { return views_.get(std::move(id)); }

    asio::awaitable<JobListing> list(JobQuery query) override { return views_.list(std::move(query)); }

    asio::awaitable<CancelOutcome> cancel(std::string id) override {
        return on_thread([this, id = std::move(id)] { return cancel_now(id); });
    }

    asio::awaitable<RemoveOutcome> remove(std::string id) override {
        return on_thread([this, id = std::move(id)] { return remove_now(id); });
    }

    asio::awaitable<std::optional<std::vector<MetricSeries>>> metrics(std::string id, SeriesQuery query) override {
        return views_.metrics(std::move(id), std::move(query));
    }

    asio::awaitable<EventBatch> events(std::string id, std::uint64_t after, std::uint32_t limit) override {
        return views_.events(std::move(id), after, limit);
    }

    asio::awaitable<EventBatch> wait_events(std::string id, std::uint64_t after, std::uint32_t limit) override {
        auto task = wait_events_now(std::move(id), after, limit);
        co_return co_await asio::co_spawn(io_, std::move(task), asio::use_awaitable);
    }

  private:
    void run_thread() {
        while (true) {
            try {
                io_.run();
                return;
            } catch (...) {
                log_failure(std::current_exception());
            }
        }
    }

    /// Runs `function` on the manager's thread; the caller comes back on its own executor.
    template <class Function>
    asio::awaitable<std::invoke_result_t<Function>> on_thread(Function function) {
        return run_on(io_.get_executor(), std::move(function));
    }

    std::optional<api::Job> visible(std::optional<api::Job> job) const {
        if (job) {
            job->queue_position = table_.queue_position(job->id);
        }
        return job;
    }

    EventBatch read_events(const std::string& id, std::uint64_t after, std::uint32_t limit) {
        EventBatch batch;
        const auto state = journal_.state_of(id);
        if (!state) {
            batch.found = false;
            batch.ended = true;
            return batch;
        }
        auto page = journal_.events(id, after, limit);
        batch.events = std::move(page.events);
        batch.has_more = page.has_more;
        if (batch.has_more) {
            return batch;
        }
        if (api::is_terminal(*state)) {
            if (!journal_.is_saved(id)) {
                return batch;  // its last events will follow
            }
            batch.ended = true;
            batch.job = visible(journal_.get(id));
        } else {
            batch.ended = table_.stopping() && !table_.is_running(id);
        }
        return batch;
    }

    asio::awaitable<EventBatch> wait_events_now(std::string id, std::uint64_t after, std::uint32_t limit) {
        auto batch = read_events(id, after, limit);
        if (batch.ended || !batch.events.empty()) {
            co_return batch;
        }
        auto waiting = waiters_.wait(id, steady_clock::now() + options_.heartbeat);
        co_await std::move(waiting);
        co_return read_events(id, after, limit);
    }

    /// Carries out all that is to be done now, and comes back when there will be more.
    void pump() {
        if (pumping_) {
            return;  // the loop below, further up the stack, asks again
        }
        perform_all();
        wakeup_.cancel();
        if (const auto next = table_.next_wakeup()) {
            wakeup_.expires_at(*next);
            wakeup_.async_wait([this](const boost::system::error_code& ec) {
                if (!ec) {
                    pump();
                }
            });
        }
    }

    void perform_all() {
        pumping_ = true;
        const auto over = [this](const void*) { pumping_ = false; };
        const std::unique_ptr<const void, decltype(over)> pumping(this, over);
        const auto poll = [this] {
            auto actions = table_.poll(steady_clock::now());
            journal_.board().set_queue(table_.queue());
            return actions;
        };
        for (auto actions = poll(); !actions.empty(); actions = poll()) {
            for (const auto& action : actions) {
                std::visit([this](const auto& it) { perform(it); }, action);
            }
        }
    }

    void perform(const StartWorkerAction& action) {
        if (const auto outcome = running_.start(action.id, action.resume, action.cut)) {
            table_.on_ended(action.id, *outcome, steady_clock::now());
        }
        saved_or_retried();
        show_counts();
    }

    void perform(const StopWorkerAction& action) { running_.stop(action.id); }
    void perform(const KillWorkerAction& action) { running_.kill(action.id); }

    void perform(const StoreStateAction& action) {
        auto& stored = journal_.edit(action.id);
        auto reason = action.reason;
        if (reason && action.waits) {
            // The same wait, if it was not over in between.
            const auto& before = stored.job.status_reason;
            reason->since =
                before && before->code == reason->code && !before->since.empty() ? before->since : now_text();
            log::warn(kComponent, action.id + " waits: " + reason->message);
        }
        if (reason && reason->code == kWorkerRestarting) {
            metrics_->worker_restarted();
        }
        stored.job.state = action.state;
        stored.job.status_reason = std::move(reason);
        stored.resume = action.resume;
        if (api::is_terminal(action.state)) {
            stored.job.finished_at = now_text();
            metrics_->job_finished(action.state);
            log::info(kComponent, action.id + " " + api::to_string(action.state) +
                                      (action.reason ? ": " + action.reason->message : std::string()));
        }
        append(action.id, state_record(stored.job));
        show_counts();
    }

    void perform(const StoreCancelRequestAction& action) {
        journal_.edit(action.id).job.cancel_requested = true;
        api::JobEvent event;
        event.message = "cancellation requested";
        append(action.id, std::move(event));
    }

    void perform(const WakeReadersAction&) { waiters_.wake_all(); }

    void append(const std::string& id, api::JobEvent event) {
        journal_.append(id, std::move(event));
        saved_or_retried();
    }

    void saved_or_retried() {
        if (journal_.needs_retry()) {
            retry_later();
        }
    }

    /// What asks for a write at once: its failure is the caller's as well.
    template <class Write>
    void written(Write write) {
        try {
            write();
        } catch (const ErrorException&) {
            show_counts();
            saved_or_retried();
            throw;
        }
    }

    void retry_later() {
        if (std::exchange(retrying_, true)) {
            return;
        }
        retry_.expires_after(options_.store_retry);
        retry_.async_wait([this](const boost::system::error_code& ec) {
            retrying_ = false;
            if (ec) {
                return;
            }
            journal_.retry();
            show_counts();
            saved_or_retried();
        });
    }

    void show_counts() {
        try {
            metrics_->set_store(!journal_.needs_retry(), journal_.unsaved_events());
            metrics_->set_jobs_waiting(journal_.waiting());
            metrics_->set_job_counts(journal_.counts());
        } catch (const ErrorException& error) {
            log::error(kComponent, error.what());
        }
    }

    void start_now() {
        for (const auto& stored : journal_.restore()) {
            const auto& job = stored.job;
            table_.restore({job.id, folder_identity(job.output), job.state == JobState::running, job.cancel_requested,
                            stored.resume});
        }
        table_.start();
        ready_ = true;
        show_counts();
        pump();
    }

    asio::awaitable<void> stop_now() {
        ready_ = false;
        table_.stop(steady_clock::now());
        pump();
        co_await running_.join();
    }

    bool ready_now() {
        try {
            if (ready_) {
                written([&] { journal_.check_writable(); });
            }
        } catch (const ErrorException&) {
            // store_trouble() says why.
        }
        return ready_;
    }

    SubmitOutcome submit_now(const SubmitRequest& request) {
        SubmitOutcome outcome;
        JobSubmission submission;
        submission.dry_run = request.dry_run;
        auto earlier = earlier_job(request, journal_, options_.idempotency_lifetime);
        if (earlier) {
            submission.earlier = {earlier->job.spec_json == request.spec_json};
        }
        auto spec = api::parse_job_spec(request.spec_json);
        if (spec) {
            api::make_paths_absolute(*spec, options_.working_directory);
            submission.output = folder_identity(spec->output);
        }
        outcome.kind = table_.judge(submission);
        switch (outcome.kind) {
            case SubmitVerdict::stopping:
            case SubmitVerdict::key_reused:
            case SubmitVerdict::queue_full:
                return outcome;
            case SubmitVerdict::existing:
                outcome.job = *visible(std::move(earlier->job));
                return outcome;
            case SubmitVerdict::invalid:
                outcome.violations = spec.error();
                return outcome;
            case SubmitVerdict::conflict:
                outcome.violations = output_conflict(*table_.output_user(*submission.output), *submission.output);
                return outcome;
            case SubmitVerdict::valid:
            case SubmitVerdict::created:
                outcome.violations = check_named_files(*spec, submission.dry_run ? LookInside::yes : LookInside::no);
                if (!outcome.violations.violations.empty()) {
                    outcome.kind = SubmitVerdict::invalid;
                    return outcome;
                }
                if (submission.dry_run) {
                    outcome.job = new_job(request, *spec).job;
                    return outcome;
                }
                break;
        }
        auto stored = new_job(request, *spec);
        stored.job.id = make_job_id();
        written([&] { journal_.create(stored); });
        append(stored.job.id, state_record(stored.job));
        show_counts();
        table_.enqueue(stored.job.id, *submission.output);
        journal_.board().set_queue(table_.queue());
        outcome.job = *visible(std::move(stored.job));
        // The answer says "queued", also when a slot is free.
        asio::post(io_, [this] { pump(); });
        return outcome;
    }

    CancelOutcome cancel_now(const std::string& id) {
        CancelOutcome outcome;
        if (table_.cancel(id, steady_clock::now())) {
            outcome.kind = CancelOutcome::Kind::accepted;
            pump();
        }
        if (auto job = visible(journal_.get(id))) {
            outcome.job = *std::move(job);
            if (outcome.kind == CancelOutcome::Kind::not_found) {
                outcome.kind = CancelOutcome::Kind::terminal;
            }
        }
        return outcome;
    }

    RemoveOutcome remove_now(const std::string& id) {
        const auto state = journal_.state_of(id);
        if (!state) {
            return {};
        }
        if (!api::is_terminal(*state)) {
            return {RemoveOutcome::Kind::not_ended, *state};
        }
        written([&] { journal_.remove(id); });
        log::info(kComponent, id + " deleted");
        show_counts();
        return {RemoveOutcome::Kind::removed, *state};
    }

    void on_event(const WorkerEvent& event) {
        if (std::holds_alternative<WaitingEvent>(event) || std::holds_alternative<StartedEvent>(event)) {
            show_counts();
        }
        saved_or_retried();
    }

    void on_ended(const std::string& id, const WorkerOutcome& outcome) {
        table_.on_ended(id, outcome, steady_clock::now());
        pump();
    }

    const JobManagerOptions options_;
    JobJournal journal_;
    std::shared_ptr<JobMetrics> metrics_;
    JobViews views_;
    JobTable table_;
    bool ready_ = false;
    bool pumping_ = false;
    bool retrying_ = false;
    asio::io_context io_{1};
    asio::executor_work_guard<asio::io_context::executor_type> work_;
    EventWaiters waiters_;
    RunningJobs running_;
    asio::steady_timer wakeup_;
    asio::steady_timer retry_;
    std::thread thread_;
};

}  // namespace

std::unique_ptr<JobManager> make_job_manager(JobManagerOptions options, std::unique_ptr<JobStore> store,
                                             WorkerFactory make_worker, std::shared_ptr<JobMetrics> metrics) {
    return std::make_unique<ThreadedJobManager>(std::move(options), std::move(store), std::move(make_worker),
                                                std::move(metrics));
}

}  // namespace distilld
