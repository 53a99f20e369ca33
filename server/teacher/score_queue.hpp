#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.hpp"
#include "models/serving/teacher_scorer.hpp"
#include "pipeline/async/condition.hpp"
#include "server/teacher/teacher_metrics.hpp"

namespace distilld::teacher {

struct ScoreQueueOptions {
    std::uint32_t max_waiting = 256;                               ///< requests
    std::uint64_t max_batch_tokens = 16384;                        ///< of requests handed to the compute thread at once
    std::chrono::nanoseconds timeout = std::chrono::seconds(120);  ///< in the queue and in computation
};

/// Joins requests from many connections to the one thread that computes. Whenever that thread is free it is handed what
/// waits, in order of arrival, up to max_batch_tokens; nothing waits for a batch to fill. Each request is answered as
/// soon as it is done itself. Everything here runs on one executor, a strand or a single-threaded context.
class ScoreQueue {
  public:
    enum class Refusal { full, timeout };
    /// Either why the request was not computed, or what came of it.
    struct Outcome {
        std::optional<Refusal> refusal;
        std::optional<Result<models::ScoreResult>> result;  ///< set without a refusal
        std::chrono::steady_clock::time_point finished;
    };

    ScoreQueue(boost::asio::any_io_executor executor, boost::asio::any_io_executor compute, ScoreQueueOptions options,
               TeacherMetrics& metrics);

    /// Waits for the answer. When the caller is cancelled or the time is up, the request is dropped if it has not been
    /// begun. `scorer` must outlive run().
    boost::asio::awaitable<Outcome> submit(models::TeacherScorer& scorer, models::ScoreRequest request);

    /// Feeds the compute thread until stop(); returns when that thread is idle. What still waits is dropped.
    boost::asio::awaitable<void> run();
    void stop();

    [[nodiscard]] std::size_t waiting() const noexcept { return waiting_.size(); }

  private:
    struct Job;
    using Batch = std::vector<std::shared_ptr<Job>>;

    [[nodiscard]] Batch take_batch();
    void compute(const Batch& batch);
    void withdraw(const std::shared_ptr<Job>& job);

    boost::asio::any_io_executor executor_;
    boost::asio::any_io_executor compute_;
    ScoreQueueOptions options_;
    TeacherMetrics& metrics_;
    std::deque<std::shared_ptr<Job>> waiting_;
    Condition wake_;
    std::atomic<bool> stopping_{false};
};

}  // namespace distilld::teacher
