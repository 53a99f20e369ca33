#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>

#include "pipeline/graph/graph_options.hpp"

namespace distilld {

/// Number of threads that decode answers: `wanted` or, if that is 0, half of `cores`, at least one.
[[nodiscard]] std::uint32_t decode_threads_for(std::uint32_t wanted, std::uint32_t cores) noexcept;

/// The threads of one training job: `io` runs the coroutines on the thread that calls its run(); compute, staging and
/// disk have one thread each.
class WorkerThreads {
  public:
    /// Starts the decoding threads once their number is known.
    void start_decoding(std::uint32_t threads);

    /// Starts the threads of `count` replicas; each calls `first` before its work. Waits for these calls.
    void start_replicas(std::uint32_t count, const std::function<void()>& first);

    /// Until the decoding threads are started, staging decodes; without replicas, compute trains.
    [[nodiscard]] GraphExecutors executors();

    /// Takes no more work and waits for what was given. Call after the coroutines that use the threads have ended.
    void join();

    boost::asio::io_context io{1};

  private:
    boost::asio::thread_pool compute_{1};
    boost::asio::thread_pool staging_{1};
    boost::asio::thread_pool disk_{1};
    std::optional<boost::asio::thread_pool> decode_;
    std::uint32_t decode_threads_ = 0;
    std::deque<boost::asio::thread_pool> replicas_;
};

}  // namespace distilld
