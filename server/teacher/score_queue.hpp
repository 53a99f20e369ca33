#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "pipeline/async/condition.hpp"
#include "server/teacher/teacher_metrics.hpp"

namespace distilld::teacher {

struct ScoreQueueOptions {
    std::uint32_t max_waiting = 256;                               ///< requests
    std::uint64_t max_batch_tokens = 16384;                        ///< positions of the requests in one batch
    std::chrono::nanoseconds timeout = std::chrono::seconds(120);  ///< in the queue and during computation
};

/// Passes requests of many connections, of positions or of samples, to the compute thread. Whenever it is free, it gets
/// all waiting requests in order of arrival, up to max_batch_tokens; no request waits for a batch to fill. Each request
/// is answered as soon as it is done. All members run on one executor, a strand or a single-threaded context.
class ScoreQueue {
  public:
    enum class Refusal { full, timeout };
    /// Computes a request's answer and leaves it where its caller finds it. An exception is an internal error.
    using Work = std::function<Result<void>()>;
    struct Outcome {
        std::optional<Refusal> refusal;  ///< why the work was not done
        Result<void> result;             ///< of the work
        std::chrono::steady_clock::time_point finished;
    };

    ScoreQueue(boost::asio::any_io_executor executor, boost::asio::any_io_executor compute, ScoreQueueOptions options,
               TeacherMetrics& metrics);

    /// Waits for the end of the work on so many positions. If the caller is cancelled or times out, the request is
    /// dropped unless it has begun: the work must own what it uses, or that must outlive run().
    boost::asio::awaitable<Outcome> submit(std::uint64_t positions, Work work);

    /// Feeds the compute thread until stop(); returns when it is idle. Waiting requests are dropped.
    boost::asio::awaitable<void> run();
    void stop();

    [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }

  private:
    struct Job;
    using Batch = std::vector<std::shared_ptr<Job>>;

    [[nodiscard]] Batch take_batch();
    void compute(const Batch& batch);
    void withdraw(const std::shared_ptr<Job>& job);
    void note_waiting();

    boost::asio::any_io_executor executor_;
    boost::asio::any_io_executor compute_;
    ScoreQueueOptions options_;
    TeacherMetrics& metrics_;
    std::deque<std::shared_ptr<Job>> waiting_;
    Condition wake_;
    std::atomic<bool> stopping_{false};
};

}  // namespace distilld::teacher
