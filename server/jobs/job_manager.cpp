#include "server/jobs/job_manager.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <thread>
#include <utility>

#include "pipeline/async/failure_message.hpp"
#include "pipeline/async/run_on.hpp"
#include "server/jobs/action_performer.hpp"
#include "server/jobs/event_reading.hpp"
#include "server/jobs/event_records.hpp"
#include "server/jobs/event_waiters.hpp"
#include "server/jobs/job_journal.hpp"
#include "server/jobs/job_table.hpp"
#include "server/jobs/job_verbs.hpp"
#include "server/jobs/job_views.hpp"
#include "server/jobs/new_job.hpp"
#include "server/jobs/running_jobs.hpp"
#include "server/jobs/store_keeper.hpp"
#include "server/jobs/submission.hpp"
#include "server/support/log.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using std::chrono::steady_clock;

constexpr const char* kComponent = "jobs";
constexpr std::size_t kDiskThreads = 4;

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
          table_({options_.slots, options_.cancel_grace, options_.restarts, options_.stop_limit, options_.max_queued}),
          work_(asio::make_work_guard(io_)),
          waiters_(io_.get_executor()),
          running_(io_.get_executor(), disk_.get_executor(), std::move(make_worker), options_, journal_, *metrics_,
                   {[this](const WorkerEvent& event) { on_event(event); },
                    [this](const std::string& id, const WorkerOutcome& outcome) { on_ended(id, outcome); }}),
          keeper_(io_.get_executor(), options_.store_retry, journal_, *metrics_),
          reading_(journal_, table_, waiters_, options_.heartbeat),
          verbs_({table_, journal_, running_, keeper_, options_}),
          performer_({table_, journal_, *metrics_, running_, keeper_, waiters_}),
          wakeup_(io_),
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

    asio::awaitable<void> answer() override {
        return on_thread([] {});
    }

    asio::awaitable<bool> ready() override {
        return on_thread([this] { return ready_now(); });
    }

    asio::awaitable<JobOutcome> submit(SubmitRequest request) override {
        auto preparing =
            run_on(disk_.get_executor(), [this, request] { return prepare_submission(request, options_); });
        auto prepared = co_await std::move(preparing);
        auto submitting = on_thread([this, request = std::move(request), prepared = std::move(prepared)]() mutable {
            return submit_now(request, std::move(prepared));
        });
        co_return co_await std::move(submitting);
    }

    std::optional<api::StatusReason> store_trouble() const override { return journal_.board().trouble(); }

    asio::awaitable<std::optional<api::Job>> get(std::string id) override { return views_.get(std::move(id)); }

    JobVersion version_of(const std::string& id) const override { return journal_.board().version_of(id); }

    asio::awaitable<JobListing> list(JobQuery query) override { return views_.list(std::move(query)); }

    asio::awaitable<JobOutcome> cancel(std::string id, LastCheckpoint last) override {
        return ask(std::move(id), [this, last](const std::string& job) { return verbs_.cancel(job, last); });
    }
    asio::awaitable<JobOutcome> pause(std::string id) override {
        return ask(std::move(id), [this](const std::string& job) { return verbs_.pause(job); });
    }
    asio::awaitable<JobOutcome> resume(std::string id) override {
        auto looking = on_thread([this, id] { return verbs_.spec_to_prepare(id); });
        const auto spec = co_await std::move(looking);
        PreparedSpec prepared;
        if (spec) {
            auto preparing = run_on(disk_.get_executor(), [this, spec = *spec] {
                return prepare_spec(spec, options_, options_.admit_again, LookInside::no);
            });
            prepared = co_await std::move(preparing);
        }
        auto resuming = ask(std::move(id), [this, prepared = std::move(prepared)](const std::string& job) {
            return verbs_.resume(job, prepared);
        });
        co_return co_await std::move(resuming);
    }
    asio::awaitable<JobOutcome> checkpoint(std::string id) override {
        return ask(std::move(id), [this](const std::string& job) { return verbs_.checkpoint(job); });
    }
    asio::awaitable<JobOutcome> change(std::string id, JobPatch patch) override {
        return ask(std::move(id),
                   [this, patch = std::move(patch)](const std::string& job) { return verbs_.change(job, patch); });
    }

    asio::awaitable<JobOutcome> remove(std::string id) override {
        return on_thread([this, id = std::move(id)] { return remove_now(id); });
    }

    asio::awaitable<std::optional<std::vector<MetricSeries>>> metrics(std::string id, SeriesQuery query) override {
        return views_.metrics(std::move(id), std::move(query));
    }

    asio::awaitable<std::optional<std::vector<api::JobCheckpoint>>> checkpoints(std::string id) override {
        return views_.checkpoints(std::move(id));
    }

    asio::awaitable<EventBatch> events(std::string id, std::uint64_t after, std::uint32_t limit) override {
        return views_.events(std::move(id), after, limit);
    }

    asio::awaitable<EventBatch> events_before(std::string id, std::uint64_t before, std::uint32_t limit) override {
        return views_.events_before(std::move(id), before, limit);
    }

    asio::awaitable<EventBatch> wait_events(std::string id, std::uint64_t after, std::uint32_t limit) override {
        auto task = reading_.wait(std::move(id), after, limit);
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

    /// Calls `verb` with the id on the manager's thread, carries out what comes of it, and answers with the job.
    template <class Verb>
    asio::awaitable<JobOutcome> ask(std::string id, Verb verb) {
        return on_thread([this, id = std::move(id), verb = std::move(verb)] {
            JobOutcome outcome = verb(id);
            if (outcome.kind == JobVerdict::accepted) {
                pump();
            }
            if (auto job = journal_.get(id)) {
                outcome.job = *std::move(job);
                journal_.board().complete(outcome.job);
            }
            return outcome;
        });
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
            journal_.board().change_queue(table_.take_queue_changes());
            return actions;
        };
        for (auto actions = poll(); !actions.empty(); actions = poll()) {
            for (const auto& action : actions) {
                performer_.perform(action);
            }
        }
    }

    void start_now() {
        journal_.ended([this](const api::Job& job) { table_.restore_ended(job.id, claims_of_stored(job)); });
        for (auto& stored : journal_.restore()) {
            if (const auto whole = journal_.get(stored.job.id)) {
                stored.job.resolved_spec_json = whole->resolved_spec_json;
            }
            table_.restore(restored_job(stored));
        }
        table_.start();
        ready_ = true;
        keeper_.show_counts();
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
                keeper_.written([&] { journal_.check_writable(); });
            }
        } catch (const ErrorException&) {
            // store_trouble() says why.
        }
        return ready_;
    }

    JobOutcome submit_now(const SubmitRequest& request, PreparedSpec prepared) {
        auto judged = judge_submission(request, std::move(prepared), options_, table_, journal_);
        auto& outcome = judged.outcome;
        auto& stored = judged.job;
        if (outcome.kind == JobVerdict::existing) {
            journal_.board().complete(outcome.job);
        }
        if (outcome.kind != JobVerdict::created) {
            return std::move(outcome);
        }
        keeper_.written([&] { stored.number = journal_.create(stored, {state_record(stored.job)}); });
        keeper_.show_counts();
        table_.enqueue(stored.job.id, judged.claims, {stored.job.priority, stored.number});
        journal_.board().change_queue(table_.take_queue_changes());
        outcome.job = std::move(stored.job);
        journal_.board().complete(outcome.job);
        // The answer says "queued", also when a slot is free.
        asio::post(io_, [this] { pump(); });
        return std::move(outcome);
    }

    JobOutcome remove_now(const std::string& id) {
        const auto state = journal_.state_of(id);
        if (!state) {
            return {};
        }
        if (!api::is_terminal(*state)) {
            JobOutcome refused{JobVerdict::not_terminal};
            refused.job.state = *state;
            return refused;
        }
        keeper_.written([&] { journal_.remove(id); });
        table_.forget(id);
        log::info(kComponent, id + " deleted");
        keeper_.show_counts();
        return {JobVerdict::accepted};
    }

    void on_event(const WorkerEvent& event) {
        if (std::holds_alternative<WaitingEvent>(event) || std::holds_alternative<StartedEvent>(event)) {
            keeper_.show_counts();
        }
        keeper_.saved_or_retried();
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
    asio::io_context io_{1};
    asio::executor_work_guard<asio::io_context::executor_type> work_;
    EventWaiters waiters_;
    asio::thread_pool disk_{kDiskThreads};  ///< looks at what specs name: nobody else waits for that
    RunningJobs running_;
    StoreKeeper keeper_;
    EventReading reading_;
    JobVerbs verbs_;
    ActionPerformer performer_;
    asio::steady_timer wakeup_;
    std::thread thread_;
};

}  // namespace

std::unique_ptr<JobManager> make_job_manager(JobManagerOptions options, std::unique_ptr<JobStore> store,
                                             WorkerFactory make_worker, std::shared_ptr<JobMetrics> metrics) {
    return std::make_unique<ThreadedJobManager>(std::move(options), std::move(store), std::move(make_worker),
                                                std::move(metrics));
}

}  // namespace distilld
