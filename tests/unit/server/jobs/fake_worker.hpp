#pragma once

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "pipeline/async/condition.hpp"
#include "server/jobs/job_manager.hpp"
#include "server/jobs/store/sqlite_job_store.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld::test {

namespace asio = boost::asio;

/// What a test holds of a fake worker: it says what the worker says, and sees what the worker was told.
class FakeControl {
  public:
    explicit FakeControl(const asio::any_io_executor& executor) : executor_(executor), ended_(executor) {}

    /// From the test's thread: the worker says this.
    void emit(WorkerEvent event, const std::shared_ptr<FakeControl>& self) {
        asio::post(executor_, [self, event = std::move(event)] {
            if (self->on_event) {
                self->on_event(event);
            }
        });
    }
    /// From the test's thread: the process ends.
    void end(const std::shared_ptr<FakeControl>& self, Result<WorkerExit> how = WorkerExit{}) {
        asio::post(executor_, [self, how = std::move(how)] { self->end_now(how); });
    }
    void end_now(Result<WorkerExit> how) {
        exit = std::move(how);
        over = true;
        ended_.notify();
    }

    WorkerStart start;
    WorkerProcess::EventHandler on_event;
    bool obeys = true;  ///< ends with CancelledEvent when told to cancel
    bool over = false;
    int cancels = 0;
    std::vector<std::string> told;  ///< "cancel", "cancel unsaved", "checkpoint", "limit 3"
    int kills = 0;
    Result<WorkerExit> exit = WorkerExit{};
    asio::any_io_executor executor_;
    Condition ended_;
};

using Control = std::shared_ptr<FakeControl>;

/// Makes fake workers and hands their controls to the test, in the order of their starts.
class Fleet {
  public:
    /// The worker that was started next; waits for it.
    Control next() {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, std::chrono::seconds(30), [this] { return taken_ < started_.size(); })) {
            throw std::runtime_error("no worker was started");
        }
        return started_[taken_++];
    }
    std::size_t count() {
        const std::lock_guard lock(mutex_);
        return started_.size();
    }
    void started(Control control) {
        const std::lock_guard lock(mutex_);
        started_.push_back(std::move(control));
        changed_.notify_all();
    }
    bool obey = true;

    WorkerFactory factory();

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Control> started_;
    std::size_t taken_ = 0;
};

class FakeWorker final : public WorkerProcess {
  public:
    FakeWorker(asio::any_io_executor executor, Fleet& fleet)
        : fleet_(fleet), control_(std::make_shared<FakeControl>(executor)) {
        control_->obeys = fleet.obey;
    }
    ~FakeWorker() override { control_->on_event = nullptr; }

    asio::awaitable<Result<WorkerExit>> run(WorkerStart start, EventHandler on_event) override {
        const auto control = control_;
        control->start = std::move(start);
        control->on_event = std::move(on_event);
        fleet_.started(control);
        while (!control->over) {
            co_await control->ended_.wait();
        }
        co_return control->exit;
    }
    void send(const WorkerCommand& command) override {
        control_->told.push_back(text_of(command));
        if (!std::holds_alternative<CancelCommand>(command)) {
            return;
        }
        ++control_->cancels;
        if (!control_->obeys) {
            return;
        }
        asio::post(control_->executor_, [control = control_] {
            if (control->on_event) {
                control->on_event(CancelledEvent{3, "/checkpoint"});
            }
            control->end_now(WorkerExit{130, ""});
        });
    }
    void kill() override {
        ++control_->kills;
        if (control_->on_event) {
            control_->on_event(FailedEvent{"internal", "the worker was killed by signal 9"});
        }
        control_->end_now(WorkerExit{137, ""});
    }

  private:
    static std::string text_of(const WorkerCommand& command) {
        if (const auto* limit = std::get_if<SetLimitCommand>(&command)) {
            return "limit " + std::to_string(limit->max_concurrent);
        }
        if (const auto* cancel = std::get_if<CancelCommand>(&command)) {
            return cancel->checkpoint ? "cancel" : "cancel unsaved";
        }
        return "checkpoint";
    }

    Fleet& fleet_;
    Control control_;
};

inline WorkerFactory Fleet::factory() {
    return
        [this](asio::any_io_executor executor, const Slot&) { return std::make_unique<FakeWorker>(executor, *this); };
}

/// Runs a coroutine to its end on a thread that stands for the server's: it lives as long as the program, because the
/// manager's thread may still be leaving it when the result is there.
template <class T>
T await(asio::awaitable<T> task) {
    static asio::thread_pool server(1);
    auto future = asio::co_spawn(server, std::move(task), asio::use_future);
    if (future.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
        throw std::runtime_error("a coroutine does not end");
    }
    return future.get();
}

inline std::string spec_text(const std::string& output) {
    return R"({"name":"test","student":{"model":"m"},"dataset":{"train":"t.jsonl","sequence_length":16},)"
           R"("training":{"max_steps":10,"batch_size":2},"output":")" +
           output + "\"}";
}

/// The same of a student that learns from a remote teacher.
inline std::string distil_text(const std::string& output) {
    auto text = spec_text(output);
    text.insert(1, R"("teacher":{"endpoints":["http://127.0.0.1:9"],"top_k":4},)");
    return text;
}

inline ProgressEvent progress_at(std::uint64_t step, double loss) {
    ProgressEvent event;
    event.step = step;
    event.total_steps = 10;
    event.loss = loss;
    event.tokens = step * 32;
    event.tokens_per_second = 100;
    return event;
}

/// Reads events until the job is in `state`; throws when it never gets there.
inline api::Job wait_for_state(JobManager& manager, const std::string& id, api::JobState state) {
    std::uint64_t after = 0;
    for (int round = 0; round < 200; ++round) {
        const auto job = await(manager.get(id));
        if (!job) {
            throw std::runtime_error("no job " + id);
        }
        if (job->state == state) {
            return *job;
        }
        const auto batch = await(manager.wait_events(id, after, 100));
        if (!batch.events.empty()) {
            after = batch.events.back().sequence;
        }
    }
    throw std::runtime_error("the job never came to " + std::string(api::to_string(state)));
}

/// A manager over a database in a folder, with fake workers.
class World {
  public:
    explicit World(JobManagerOptions options = {}, JobMetricsOptions metrics_options = {})
        : options_(std::move(options)), metrics(std::make_shared<JobMetrics>(std::move(metrics_options))) {
        options_.working_directory = folder.path();
        // What spec_text() names.
        std::filesystem::create_directory(folder.path() / "m");
        std::ofstream(folder.path() / "t.jsonl") << R"({"input_ids":[1,2,3]})" << "\n";
        open();
    }
    void open() { open(open_store(), fleet.factory()); }
    void open(std::unique_ptr<JobStore> store, WorkerFactory factory) {
        const Node machine{.name = "here", .cores = 4, .memory_mb = 1024};
        auto launcher = make_local_launcher(machine, options_.slots, std::move(factory));
        manager = std::make_unique<JobManager>(options_, std::move(store), std::move(launcher), metrics);
        await(manager->start());
    }
    std::unique_ptr<JobStore> open_store() const {
        auto store = open_sqlite_job_store(folder.path() / "jobs.sqlite");
        if (!store) {
            throw std::runtime_error(store.error().message);
        }
        return *std::move(store);
    }
    std::string submit(const std::string& output) { return submit_text(spec_text(output)); }
    std::string submit_text(const std::string& spec, std::int32_t priority = 0) {
        const auto outcome = await(manager->submit({spec, "", false, {}, {}, priority}));
        if (outcome.kind != JobVerdict::created) {
            throw std::runtime_error("not created");
        }
        return outcome.job.id;
    }
    std::vector<std::string> history(const std::string& id) {
        std::vector<std::string> result;
        for (const auto& event : await(manager->events(id, 0, 1000)).events) {
            result.push_back(std::string(api::to_string(event.type)) + ": " + event.message);
        }
        return result;
    }

    TemporaryFolder folder;
    Fleet fleet;
    JobManagerOptions options_;
    std::shared_ptr<JobMetrics> metrics;
    std::unique_ptr<JobManager> manager;
};

}  // namespace distilld::test
