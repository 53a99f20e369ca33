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

/// How records are combined into one write.
struct SinkPace {
    std::size_t max_batch = 1000;         ///< records per write
    std::chrono::milliseconds linger{0};  ///< how long a record waits for others
};

struct SinkCounts {
    std::uint64_t written = 0;
    std::uint64_t dropped = 0;
};

inline constexpr std::size_t kMaxQueuedRecords = 10'000;
/// How long a checkpoint waits for the figures of its steps, which a later crash would lose.
inline constexpr std::chrono::milliseconds kSettleTimeout{1000};
/// For the remaining records after the run's end.
inline constexpr std::chrono::seconds kFlushTimeout{5};
/// The first pause before a retry; it doubles each time up to kMaxRetryPause. A server may ask for a longer one, up to
/// kMaxRetryAfter.
inline constexpr std::chrono::milliseconds kFirstRetryPause{500};
inline constexpr std::chrono::milliseconds kMaxRetryPause{30'000};
inline constexpr std::chrono::milliseconds kMaxRetryAfter{300'000};
/// Records that cannot be written for this long are dropped in favour of newer ones.
inline constexpr std::chrono::seconds kRetryTimeout{600};

/// Pauses between the attempts of one write.
class RetryPauses {
  public:
    [[nodiscard]] std::chrono::milliseconds next(std::optional<std::chrono::milliseconds> asked);

  private:
    std::chrono::milliseconds next_ = kFirstRetryPause;
};

/// A sink with its thread and queue. take() never waits: if the queue is full, records except the run's end are dropped
/// and counted. Warnings (lost records, a failing sink) come at most once a minute, and once at the end if records were
/// lost.
class SinkRunner {
  public:
    using Warn = std::function<void(const std::string& text)>;

    /// `warn` is called on the sink's thread.
    SinkRunner(std::string name, SinkPace pace, Warn warn);
    SinkRunner(const SinkRunner&) = delete;
    SinkRunner& operator=(const SinkRunner&) = delete;
    /// Does not wait for queued records, unless the runner has finished.
    ~SinkRunner();

    /// The executor of the sink's thread, which runs from start() on.
    [[nodiscard]] boost::asio::any_io_executor executor();
    void start(std::unique_ptr<Sink> sink);

    /// Any thread.
    void take(SinkItem item);
    /// Writes the queued records without waiting for more. Any thread.
    void hurry();
    /// Blocks until the queued records are written, at most for `timeout`; false: not written. After a failure or
    /// timeout it returns at once until the sink has written something again. Any thread but the sink's.
    bool settle(std::chrono::milliseconds timeout);
    /// Takes no more records; queued ones are written within kFlushTimeout. Any thread.
    void close();
    /// Waits until the end started by close().
    void join();

    /// Any thread.
    [[nodiscard]] SinkCounts counts() const;
    [[nodiscard]] const std::string& name() const noexcept;

  private:
    class Implementation;
    std::unique_ptr<Implementation> implementation_;
};

}  // namespace distilld::sinks
