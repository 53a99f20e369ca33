#include "server/jobs/job_manager.hpp"

#include <algorithm>
#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <deque>
#include <map>
#include <random>
#include <thread>
#include <utility>

#include "api/spec_paths.hpp"
#include "server/jobs/event_records.hpp"
#include "server/support/log.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using api::JobState;
using std::chrono::steady_clock;

constexpr const char* kComponent = "jobs";
constexpr std::chrono::seconds kStoreRetry{5};

std::string now_text() {
    return api::rfc3339(std::chrono::system_clock::now());
}

std::string make_job_id() {
    std::random_device device;
    std::string id = "job-";
    for (int word = 0; word < 3; ++word) {
        char text[9];
        std::snprintf(text, sizeof text, "%08x", static_cast<unsigned>(device()));
        id += text;
    }
    return id;
}

/// One folder has one name here, whatever links and dots its spec used.
std::string folder_identity(const std::string& folder) {
    std::error_code ec;
    const auto canonical = std::filesystem::weakly_canonical(folder, ec);
    return ec ? folder : canonical.string();
}

/// A job with a worker.
struct Active {
    Active(asio::io_context& io, StoredJob job) : stored(std::move(job)), kill_timer(io) {}

    StoredJob stored;
    std::unique_ptr<WorkerProcess> worker;
    asio::steady_timer kill_timer;
    bool stopping = false;  ///< a cancel command was sent, by the user's wish or because the service ends
    bool killed = false;    ///< it did not obey in time
    std::uint32_t sequence_length = 0;
    std::optional<steady_clock::time_point> last_metrics;
    std::optional<std::uint64_t> last_metrics_step;
    std::optional<WorkerEvent> ending;  ///< FinishedEvent, CancelledEvent or FailedEvent
};

/// All members but ready_ and the constants belong to the manager's thread.
class ThreadedJobManager final : public JobManager {
  public:
    ThreadedJobManager(JobManagerOptions options, std::unique_ptr<JobStore> store, WorkerFactory make_worker,
                       std::shared_ptr<JobMetrics> metrics)
        : options_(std::move(options)),
          store_(std::move(store)),
          make_worker_(std::move(make_worker)),
          metrics_(std::move(metrics)),
          work_(asio::make_work_guard(io_)),
          idle_(io_),
          retry_(io_),
          thread_([this] { run_thread(); }) {}

    ~ThreadedJobManager() override {
        asio::post(io_, [this] {
            for (auto& [id, active] : active_) {
                active->worker->kill();
            }
            io_.stop();
        });
        thread_.join();
        active_.clear();
    }

    asio::awaitable<void> start() override {
        return on_thread([this] { start_now(); });
    }

    asio::awaitable<void> stop() override {
        auto task = stop_now();
        co_await asio::co_spawn(io_, std::move(task), asio::use_awaitable);
    }

    bool ready() const noexcept override { return ready_.load(); }

    asio::awaitable<SubmitOutcome> submit(SubmitRequest request) override {
        return on_thread([this, request = std::move(request)] { return submit_now(request); });
    }

    asio::awaitable<std::optional<api::Job>> get(std::string id) override {
        return on_thread([this, id = std::move(id)] {
            auto stored = find(id);
            return stored ? std::optional(visible(std::move(*stored))) : std::nullopt;
        });
    }

    asio::awaitable<JobListing> list(JobQuery query) override {
        return on_thread([this, query = std::move(query)] { return list_now(query); });
    }

    asio::awaitable<CancelOutcome> cancel(std::string id) override {
        return on_thread([this, id = std::move(id)] { return cancel_now(id); });
    }

    asio::awaitable<EventBatch> events(std::string id, std::uint64_t after, std::uint32_t limit) override {
        return on_thread([this, id = std::move(id), after, limit] { return read_events(id, after, limit); });
    }

    asio::awaitable<EventBatch> wait_events(std::string id, std::uint64_t after, std::uint32_t limit) override {
        auto task = wait_events_now(std::move(id), after, limit);
        co_return co_await asio::co_spawn(io_, std::move(task), asio::use_awaitable);
    }

  private:
    // ---- the thread ----

    void run_thread() {
        while (true) {
            try {
                io_.run();
                return;
            } catch (const std::exception& error) {
                log::error(kComponent, std::string("unexpected: ") + error.what());
            }
        }
    }

    template <class Function>
    static asio::awaitable<std::invoke_result_t<Function>> call(Function function) {
        co_return function();
    }

    /// Runs `function` on the manager's thread; the caller comes back on its own executor.
    template <class Function>
    asio::awaitable<std::invoke_result_t<Function>> on_thread(Function function) {
        auto task = call(std::move(function));
        co_return co_await asio::co_spawn(io_, std::move(task), asio::use_awaitable);
    }

    // ---- reading ----

    std::optional<StoredJob> find(const std::string& id) {
        if (const auto active = active_.find(id); active != active_.end()) {
            return active->second->stored;
        }
        if (const auto unsaved = unsaved_.find(id); unsaved != unsaved_.end()) {
            return unsaved->second;
        }
        return store_->get(id);
    }

    api::Job visible(StoredJob stored) const {
        if (const auto active = active_.find(stored.job.id); active != active_.end()) {
            stored = active->second->stored;
        } else if (const auto unsaved = unsaved_.find(stored.job.id); unsaved != unsaved_.end()) {
            stored = unsaved->second;
        }
        stored.job.queue_position.reset();
        if (const auto place = std::find(queue_.begin(), queue_.end(), stored.job.id); place != queue_.end()) {
            stored.job.queue_position = static_cast<std::uint64_t>(place - queue_.begin()) + 1;
        }
        return std::move(stored.job);
    }

    JobListing list_now(const JobQuery& query) {
        JobListing listing;
        if (!query.after.empty() && !store_->get(query.after)) {
            listing.unknown_after = true;
            return listing;
        }
        auto page = store_->list(query);
        listing.has_more = page.has_more;
        for (auto& stored : page.jobs) {
            listing.jobs.push_back(visible(std::move(stored)));
        }
        return listing;
    }

    EventBatch read_events(const std::string& id, std::uint64_t after, std::uint32_t limit) {
        EventBatch batch;
        auto stored = find(id);
        if (!stored) {
            batch.found = false;
            batch.ended = true;
            return batch;
        }
        auto page = store_->events(id, after, limit);
        batch.events = std::move(page.events);
        batch.has_more = page.has_more;
        if (batch.has_more) {
            return batch;
        }
        if (api::is_terminal(stored->job.state)) {
            batch.ended = true;
            batch.job = visible(std::move(*stored));
        } else if (stopping_ && !active_.contains(id)) {
            batch.ended = true;
        }
        return batch;
    }

    /// Ends the wait of every reader of a job.
    void wake(const std::string& id) {
        const auto [first, last] = waiters_.equal_range(id);
        for (auto waiter = first; waiter != last; ++waiter) {
            waiter->second->cancel();
        }
    }

    asio::awaitable<EventBatch> wait_events_now(std::string id, std::uint64_t after, std::uint32_t limit) {
        auto batch = read_events(id, after, limit);
        if (batch.ended || !batch.events.empty()) {
            co_return batch;
        }
        asio::steady_timer timer(io_, options_.heartbeat);
        // The entry goes with this frame, also when the frame is destroyed in mid-wait.
        struct Entry {
            std::multimap<std::string, asio::steady_timer*>& map;
            std::multimap<std::string, asio::steady_timer*>::iterator place;
            ~Entry() { map.erase(place); }
        };
        const Entry entry{waiters_, waiters_.emplace(id, &timer)};
        co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
        co_return read_events(id, after, limit);
    }

    // ---- writing ----

    /// Stores an event and, when `with_job`, the job's new state. A disk that is full must end neither the job nor the
    /// service: a job that is over is stored later, all else comes again with the next event.
    void record(const StoredJob& stored, api::JobEvent event, bool with_job) {
        event.created_at = now_text();
        const auto& id = stored.job.id;
        try {
            const auto sequence = store_->append_event(id, event, with_job ? &stored : nullptr);
            if (with_job) {
                unsaved_.erase(id);
            }
            if (event.type == api::EventType::metrics && sequence % 1000 == 0 && sequence > options_.metrics_kept) {
                store_->drop_metrics(id, sequence - options_.metrics_kept);
            }
        } catch (const ErrorException& error) {
            log::error(kComponent, id + ": cannot be stored: " + error.what());
            if (with_job && stored.job.state != JobState::running) {
                unsaved_[id] = stored;
                retry_later();
            }
        }
        wake(id);
    }

    void record_state(const StoredJob& stored) {
        record(stored, state_record(stored.job), true);
        show_counts();
    }

    void retry_later() {
        retry_.expires_after(kStoreRetry);
        retry_.async_wait([this](const boost::system::error_code& ec) {
            if (ec) {
                return;
            }
            const auto jobs = unsaved_;
            for (const auto& [id, stored] : jobs) {
                record(stored, state_record(stored.job), true);
            }
            fill_slots();
        });
    }

    void show_counts() {
        try {
            metrics_->set_job_counts(store_->counts());
        } catch (const ErrorException& error) {
            log::error(kComponent, error.what());
        }
    }

    // ---- submitting and cancelling ----

    SubmitOutcome submit_now(const SubmitRequest& request) {
        SubmitOutcome outcome;
        const auto done = [&outcome](SubmitOutcome::Kind kind) {
            outcome.kind = kind;
            return std::move(outcome);
        };
        if (stopping_) {
            return done(SubmitOutcome::Kind::stopping);
        }
        if (!request.idempotency_key.empty() && !request.dry_run) {
            const auto oldest = std::chrono::system_clock::now() - options_.idempotency_lifetime;
            if (auto earlier = store_->find_by_key(request.idempotency_key, api::rfc3339(oldest))) {
                if (earlier->job.spec_json != request.spec_json) {
                    return done(SubmitOutcome::Kind::key_reused);
                }
                outcome.job = visible(std::move(*earlier));
                return done(SubmitOutcome::Kind::existing);
            }
        }
        auto spec = api::parse_job_spec(request.spec_json);
        if (!spec) {
            outcome.violations = spec.error();
            return done(SubmitOutcome::Kind::invalid);
        }
        api::make_paths_absolute(*spec, options_.working_directory);
        const auto folder = folder_identity(spec->output);
        for (const auto& [id, other] : outputs_) {
            if (other != folder) {
                continue;
            }
            outcome.violations.violations.push_back(
                {"/output", "conflict", "job " + id + ", which has not ended, writes to the same folder " + folder});
            return done(SubmitOutcome::Kind::conflict);
        }
        StoredJob stored;
        stored.idempotency_key = request.idempotency_key;
        stored.job.name = spec->name;
        stored.job.created_at = now_text();
        stored.job.output = spec->output;
        stored.job.spec_json = request.spec_json;
        stored.job.resolved_spec_json = api::to_json(*spec);
        if (request.dry_run) {
            outcome.job = std::move(stored.job);
            return done(SubmitOutcome::Kind::valid);
        }
        stored.job.id = make_job_id();
        store_->create(stored);
        record_state(stored);
        outputs_[stored.job.id] = folder;
        queue_.push_back(stored.job.id);
        outcome.job = visible(std::move(stored));
        // The answer says "queued", also when a slot is free.
        asio::post(io_, [this] { fill_slots(); });
        return done(SubmitOutcome::Kind::created);
    }

    CancelOutcome cancel_now(const std::string& id) {
        CancelOutcome outcome;
        auto stored = find(id);
        if (!stored) {
            return outcome;
        }
        if (api::is_terminal(stored->job.state)) {
            outcome.kind = CancelOutcome::Kind::terminal;
            outcome.job = visible(std::move(*stored));
            return outcome;
        }
        outcome.kind = CancelOutcome::Kind::accepted;
        if (const auto found = active_.find(id); found != active_.end()) {
            auto& active = found->second;
            if (!active->stored.job.cancel_requested) {
                active->stored.job.cancel_requested = true;
                api::JobEvent event;
                event.message = "cancellation requested";
                record(active->stored, std::move(event), true);
                ask_to_stop(active);
            }
        } else {
            std::erase(queue_, id);
            end_job(*stored, JobState::cancelled,
                    api::StatusReason{"cancelled_by_user", "cancelled while it was queued"});
        }
        outcome.job = visible(std::move(*stored));
        return outcome;
    }

    void ask_to_stop(const std::shared_ptr<Active>& active) {
        if (active->stopping) {
            return;
        }
        active->stopping = true;
        active->worker->send(CancelCommand{});
        active->kill_timer.expires_after(options_.cancel_grace);
        active->kill_timer.async_wait([weak = std::weak_ptr(active)](const boost::system::error_code& ec) {
            const auto late = weak.lock();
            if (ec || !late) {
                return;
            }
            late->killed = true;
            late->worker->kill();
        });
    }

    // ---- running ----

    void start_now() {
        for (auto& stored : store_->unfinished()) {
            auto& job = stored.job;
            outputs_[job.id] = folder_identity(job.output);
            if (job.state == JobState::queued) {
                queue_.push_back(job.id);
                continue;
            }
            // It ran when the service ended without a chance to say so; its worker has died with the service.
            if (job.cancel_requested) {
                end_job(stored, JobState::cancelled,
                        api::StatusReason{"cancelled_by_user", "cancelled; the service ended meanwhile"});
                continue;
            }
            requeue(stored, {"service_restarted",
                             "the service ended while the job ran; it goes on from its newest checkpoint"});
        }
        started_ = true;
        ready_ = true;
        show_counts();
        fill_slots();
    }

    asio::awaitable<void> stop_now() {
        stopping_ = true;
        ready_ = false;
        for (auto& [id, active] : active_) {
            ask_to_stop(active);
        }
        for (auto& [id, timer] : waiters_) {
            timer->cancel();
        }
        while (!active_.empty()) {
            idle_.expires_at(steady_clock::time_point::max());
            co_await idle_.async_wait(asio::as_tuple(asio::use_awaitable));
        }
    }

    void fill_slots() {
        while (started_ && !stopping_ && active_.size() < options_.slots && !queue_.empty()) {
            std::optional<StoredJob> stored;
            try {
                stored = find(queue_.front());
            } catch (const ErrorException& error) {
                log::error(kComponent, queue_.front() + ": cannot be read: " + error.what());
                retry_later();
                return;
            }
            queue_.pop_front();
            if (stored) {
                begin_job(std::move(*stored));
            }
        }
    }

    void begin_job(StoredJob stored) {
        auto active = std::make_shared<Active>(io_, std::move(stored));
        auto& job = active->stored.job;
        WorkerStart start;
        start.spec_json = job.resolved_spec_json;
        start.resume = active->stored.resume;
        try {
            if (const auto spec = api::parse_job_spec(job.resolved_spec_json)) {
                active->sequence_length = spec->dataset.sequence_length;
            }
            active->worker = make_worker_(io_.get_executor());
        } catch (const std::exception& error) {
            end_job(active->stored, JobState::failed,
                    api::StatusReason{"internal", std::string("no worker can be made: ") + error.what()});
            return;
        }
        job.state = JobState::running;
        job.started_at = now_text();
        job.status_reason.reset();
        active_[job.id] = active;
        unsaved_.erase(job.id);
        metrics_->run_started(job.id);
        record_state(active->stored);
        asio::co_spawn(io_, run_job(active, std::move(start)), asio::detached);
    }

    asio::awaitable<void> run_job(std::shared_ptr<Active> active, WorkerStart start) {
        std::string trouble;
        try {
            const WorkerProcess::EventHandler on_event = [this, &active](const WorkerEvent& event) {
                std::visit([&](const auto& it) { handle(*active, it); }, event);
            };
            auto ended = co_await active->worker->run(std::move(start), on_event);
            if (!ended) {
                trouble = ended.error().message;
            }
        } catch (const std::exception& error) {
            trouble = error.what();
        }
        active->kill_timer.cancel();
        conclude(*active, trouble);
    }

    void handle(Active& active, const StartedEvent& event) {
        metrics_->run_details(active.stored.job.id, event.first_step,
                              std::uint64_t{event.batch_size} * active.sequence_length);
        record(active.stored, record_of(event), false);
    }

    void handle(Active& active, const ProgressEvent& event) {
        active.stored.job.progress = event;
        metrics_->progress(active.stored.job.id, event);
        const auto now = steady_clock::now();
        if (active.last_metrics && now - *active.last_metrics < options_.metrics_interval) {
            return;
        }
        active.last_metrics = now;
        active.last_metrics_step = event.step;
        record(active.stored, record_of(event), true);
    }

    void handle(Active& active, const EvaluationEvent& event) {
        active.stored.job.eval_loss = event.loss;
        record(active.stored, record_of(event), true);
    }

    void handle(Active& active, const CheckpointEvent& event) {
        auto& checkpoints = active.stored.job.checkpoints;
        std::erase_if(checkpoints, [&](const auto& other) { return other.folder == event.folder; });
        checkpoints.push_back({event.step, event.folder, event.seconds, now_text()});
        record(active.stored, record_of(event), true);
    }

    void handle(Active& active, const LogEvent& event) { record(active.stored, record_of(event), false); }

    void handle(Active& active, const FinishedEvent& event) {
        auto& job = active.stored.job;
        // Thinning must not swallow the last step.
        if (active.last_metrics_step != event.last.step) {
            record(active.stored, record_of(event.last), false);
        }
        job.progress = event.last;
        metrics_->progress(job.id, event.last);
        job.weights_sha256 = event.weights_sha256;
        if (event.eval_loss) {
            job.eval_loss = event.eval_loss;
        }
        active.ending = event;
    }

    void handle(Active& active, const CancelledEvent& event) { active.ending = event; }
    void handle(Active& active, const FailedEvent& event) { active.ending = event; }

    /// The worker has ended: the job's next state.
    void conclude(Active& ended, const std::string& trouble) {
        const auto id = ended.stored.job.id;
        // Out of active_ first: from here on the store, or unsaved_, says what the job is.
        const auto active = active_.extract(id).mapped();
        auto& stored = active->stored;
        metrics_->run_ended(id);
        const auto* failed = active->ending ? std::get_if<FailedEvent>(&*active->ending) : nullptr;
        const bool finished = active->ending && std::holds_alternative<FinishedEvent>(*active->ending);
        const bool cancelled = active->ending && std::holds_alternative<CancelledEvent>(*active->ending);
        const bool by_user = stored.job.cancel_requested;
        // A worker that dies while the service ends (a signal to the whole group) is no failure of the job.
        const bool died = !finished && !cancelled && (failed == nullptr || failed->kind == "internal");
        if (finished) {
            end_job(stored, JobState::succeeded, std::nullopt);
        } else if (stopping_ && !by_user && (cancelled || died)) {
            requeue(stored, {"service_stopped", "the service stopped; the job goes on when it starts again"});
        } else if (cancelled) {
            end_job(stored, JobState::cancelled, cancel_reason(by_user, *active->ending));
        } else if (by_user && active->killed) {
            end_job(
                stored, JobState::cancelled,
                api::StatusReason{"worker_killed",
                                  "the worker did not stop in time and was killed; the newest checkpoint is whole"});
        } else if (failed != nullptr) {
            end_job(stored, JobState::failed, api::StatusReason{failed->kind, failed->message});
        } else {
            end_job(stored, JobState::failed,
                    api::StatusReason{"internal", trouble.empty() ? "the worker ended without a result" : trouble});
        }
        idle_.cancel();
        fill_slots();
    }

    static api::StatusReason cancel_reason(bool by_user, const WorkerEvent& ending) {
        const bool saved = !std::get<CancelledEvent>(ending).checkpoint.empty();
        if (by_user) {
            return {"cancelled_by_user", saved ? "cancelled after a checkpoint" : "cancelled before a step was done"};
        }
        return {"worker_stopped", "the worker was told to stop from outside the service"};
    }

    void end_job(StoredJob& stored, JobState state, std::optional<api::StatusReason> reason) {
        auto& job = stored.job;
        job.state = state;
        job.finished_at = now_text();
        job.status_reason = std::move(reason);
        stored.resume = false;
        outputs_.erase(job.id);
        metrics_->job_finished(state);
        record_state(stored);
        log::info(kComponent, job.id + " " + api::to_string(state) +
                                  (job.status_reason ? ": " + job.status_reason->message : std::string()));
    }

    /// Back to the queue; the next run resumes. (At a start the queue is filled oldest job first.)
    void requeue(StoredJob& stored, api::StatusReason reason) {
        stored.job.state = JobState::queued;
        stored.job.status_reason = std::move(reason);
        stored.resume = true;
        queue_.push_back(stored.job.id);
        record_state(stored);
    }

    const JobManagerOptions options_;
    std::unique_ptr<JobStore> store_;
    WorkerFactory make_worker_;
    std::shared_ptr<JobMetrics> metrics_;
    std::atomic<bool> ready_{false};
    bool started_ = false;
    bool stopping_ = false;
    std::deque<std::string> queue_;                            ///< ids, next one first
    std::map<std::string, std::string> outputs_;               ///< folder of each job that has not ended
    std::map<std::string, StoredJob> unsaved_;                 ///< newest state of jobs that the store refused
    std::multimap<std::string, asio::steady_timer*> waiters_;  ///< by job; outlives the frames in io_
    asio::io_context io_{1};
    asio::executor_work_guard<asio::io_context::executor_type> work_;
    std::map<std::string, std::shared_ptr<Active>> active_;
    asio::steady_timer idle_;
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
