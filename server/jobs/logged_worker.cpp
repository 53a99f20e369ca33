#include "server/jobs/logged_worker.hpp"

#include <chrono>
#include <string>
#include <utility>
#include <variant>

#include "server/supervisor/ranked_worker.hpp"
#include "server/support/log.hpp"
#include "server/support/rate_limit.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;

/// Bytes of a worker's output that go to the log of the service, which nothing else bounds: a traceback is a few KiB,
/// and 1 KiB per second is 84 MiB per day.
constexpr double kLoggedAtOnce = 256 << 10;
constexpr double kLoggedPerSecond = 1 << 10;

class LoggedWorker final : public WorkerProcess {
  public:
    LoggedWorker(std::shared_ptr<JobLogs> logs, const MakeLoudWorker& make_worker, bool adopted)
        : logs_(std::move(logs)), adopted_(adopted) {
        worker_ = make_worker([this](const std::string& line) {
            if (limit_.take(static_cast<double>(line.size() + 1), std::chrono::steady_clock::now())) {
                tell_what_is_missing();
                log::info("worker", line);
            }
            logs_->append(job_id_, "stderr", line);
        });
    }

    asio::awaitable<Result<WorkerExit>> run(WorkerStart start, EventHandler on_event) override {
        job_id_ = start.job_id;
        const char* begun = start.resume ? "a worker is started, to resume" : "a worker is started";
        logs_->append(job_id_, "info", adopted_ ? "the service is back; the worker has gone on" : begun);
        EventHandler handler = [this, on_event = std::move(on_event)](const WorkerEvent& event) {
            keep(event);
            on_event(event);
        };
        auto ended = co_await worker_->run(std::move(start), std::move(handler));
        tell_what_is_missing();
        if (ended) {
            logs_->append(job_id_, "info", "the worker has ended, exit code " + std::to_string(ended->exit_code));
        } else {
            logs_->append(job_id_, "error", ended.error().message);
        }
        co_return ended;
    }

    void send(const WorkerCommand& command) override { worker_->send(command); }
    void kill() override { worker_->kill(); }

  private:
    void tell_what_is_missing() {
        if (const auto lines = limit_.take_refused(); lines > 0) {
            log::warn("worker", job_id_ + ": " + std::to_string(lines) +
                                    " lines that its worker wrote are left out; the job's own log has the newest");
        }
    }

    void keep(const WorkerEvent& event) {
        if (const auto* said = std::get_if<LogEvent>(&event)) {
            logs_->append(job_id_, said->level, said->message);
        } else if (const auto* failed = std::get_if<FailedEvent>(&event)) {
            logs_->append(job_id_, "error", failed->message);
        }
    }

    std::shared_ptr<JobLogs> logs_;
    bool adopted_;
    std::string job_id_;
    RateLimit limit_{kLoggedAtOnce, kLoggedPerSecond};
    std::unique_ptr<WorkerProcess> worker_;  // last: its sink uses the others
};

}  // namespace

std::unique_ptr<WorkerProcess> make_logged_worker(std::shared_ptr<JobLogs> logs, const MakeLoudWorker& make_worker,
                                                  bool adopted) {
    return std::make_unique<LoggedWorker>(std::move(logs), make_worker, adopted);
}

WorkerFactory make_logged_workers(WorkerProcessOptions options, std::shared_ptr<JobLogs> logs) {
    return [options = std::move(options), logs = std::move(logs)](asio::any_io_executor executor, const Slot& slot) {
        WorkerProcessOptions there = options;
        there.cores = slot.cores;
        if (!slot.device.empty()) {
            there.environment.push_back("CUDA_VISIBLE_DEVICES=" + slot.device);
        }
        return make_logged_worker(logs, [&](WorkerOutput::LineSink sink) {
            there.stderr_sink = std::move(sink);
            return make_ranked_worker(
                executor, [executor, there](std::uint32_t) { return make_worker_process(executor, there); });
        });
    };
}

}  // namespace distilld
