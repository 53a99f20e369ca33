#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pipeline/async/condition.hpp"
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
    SinkRunner(std::string name, SinkPace pace, Warn warn)
        : name_(std::move(name)), pace_(pace), warn_(std::move(warn)) {}
    SinkRunner(const SinkRunner&) = delete;
    SinkRunner& operator=(const SinkRunner&) = delete;
    /// Does not wait for queued records, unless the runner has finished.
    ~SinkRunner();

    /// The executor of the sink's thread, which runs from start() on.
    [[nodiscard]] boost::asio::any_io_executor executor() { return io_.get_executor(); }
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
    [[nodiscard]] const std::string& name() const noexcept { return name_; }

  private:
    using Clock = std::chrono::steady_clock;
    struct Queued {
        Clock::time_point since;
        SinkItem item;
    };
    struct View {
        std::size_t size;
        bool closed;
        bool at_once;
        bool hurried;
        Clock::time_point oldest;
    };

    void end(bool at_once);
    void wake();
    [[nodiscard]] View look() const;
    boost::asio::awaitable<void> run();
    boost::asio::awaitable<void> flush_deadline();
    boost::asio::awaitable<void> write_all();
    /// False: the queue is empty and closed.
    boost::asio::awaitable<bool> gather();
    void next_batch();
    boost::asio::awaitable<void> write_batch();
    boost::asio::awaitable<WriteResult> write_once();
    /// The end of the run cuts it short once, for an immediate retry.
    boost::asio::awaitable<void> pause(std::chrono::milliseconds span);
    void failed();
    void batch_ended(std::size_t lost, bool failing);
    void leave_the_rest();
    /// Called on the sink's thread; warns at most once per kWarnInterval.
    void trouble(const std::string& text);

    std::string name_;
    SinkPace pace_;
    Warn warn_;
    boost::asio::io_context io_{1};
    Condition changed_{io_.get_executor()};
    std::unique_ptr<Sink> sink_;
    std::vector<SinkItem> batch_;  ///< being written
    std::optional<Clock::time_point> told_at_;
    std::uint64_t told_dropped_ = 0;
    std::string last_trouble_;
    mutable std::mutex mutex_;
    std::deque<Queued> queue_;
    std::condition_variable settled_changed_;
    SinkCounts counts_;
    std::uint64_t accepted_ = 0;  ///< into the queue
    std::uint64_t settled_ = 0;   ///< of those, written or lost
    std::uint64_t hurried_ = 0;   ///< of those, to be written without waiting for others
    bool failing_ = false;        ///< since a failure or a timed-out wait, until the next success
    bool closed_ = false;
    bool at_once_ = false;  ///< do not wait for queued records
    std::thread thread_;
};

}  // namespace distilld::sinks
