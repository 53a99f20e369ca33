#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/sinks/sink.hpp"

namespace distilld::sinks {

/// How records are gathered for one write.
struct SinkPace {
    std::size_t max_batch = 1000;         ///< records of a write
    std::chrono::milliseconds linger{0};  ///< so long a record waits for others to be written with
};

struct SinkCounts {
    std::uint64_t written = 0;
    std::uint64_t dropped = 0;
};

inline constexpr std::size_t kMaxQueuedRecords = 10'000;
/// Before a checkpoint is written: the figures of its steps would be lost when the process dies behind it.
inline constexpr std::chrono::milliseconds kSettlePatience{1000};
/// After the run's end, for what is left.
inline constexpr std::chrono::seconds kFlushPatience{5};
/// A failed write is tried again after this, twice, four times … as long, at most kMaxRetryPause, or as the server
/// asks.
inline constexpr std::chrono::milliseconds kFirstRetryPause{500};
inline constexpr std::chrono::milliseconds kMaxRetryPause{30'000};
inline constexpr std::chrono::milliseconds kMaxRetryAfter{300'000};
/// Records that could not be written for so long are given up, so that newer ones have a chance.
inline constexpr std::chrono::seconds kRetryPatience{600};

/// Pauses between the attempts of one write.
class RetryPauses {
  public:
    [[nodiscard]] std::chrono::milliseconds next(std::optional<std::chrono::milliseconds> asked);

  private:
    std::chrono::milliseconds next_ = kFirstRetryPause;
};

/// A sink with its thread and its queue. take() never waits: what finds the queue full is dropped and counted, but for
/// the run's end. Warnings (records lost; a sink that fails) come at most once a minute, and once at the end when
/// records were lost.
class SinkRunner {
  public:
    using Warn = std::function<void(const std::string& text)>;

    /// `warn` is called on the sink's thread.
    SinkRunner(std::string name, SinkPace pace, Warn warn);
    SinkRunner(const SinkRunner&) = delete;
    SinkRunner& operator=(const SinkRunner&) = delete;
    /// Ends without waiting for what is left, unless finished before.
    ~SinkRunner();

    /// Of the sink's thread, which runs from start() on.
    [[nodiscard]] boost::asio::any_io_executor executor();
    void start(std::unique_ptr<Sink> sink);

    /// Any thread.
    void take(SinkItem item);
    /// What was taken until now does not wait for others to be written with. Any thread.
    void hurry();
    /// Blocks until what was taken until now is written, for `patience` at most; false: it is not. A sink that fails,
    /// or was waited for in vain, is not waited for until it has written something. Any thread but the sink's.
    bool settle(std::chrono::milliseconds patience);
    /// No record is taken any more; what waits is written within kFlushPatience. Any thread.
    void close();
    /// Waits for the end that close() announced.
    void join();

    /// Any thread.
    [[nodiscard]] SinkCounts counts() const;
    [[nodiscard]] const std::string& name() const noexcept;

  private:
    class Implementation;
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace distilld::sinks
