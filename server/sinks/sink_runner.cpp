#include "server/sinks/sink_runner.hpp"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/system_error.hpp>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "pipeline/async/abort.hpp"
#include "pipeline/async/condition.hpp"
#include "pipeline/async/deadline.hpp"

namespace distilld::sinks {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;

namespace {

constexpr std::chrono::seconds kWarnInterval{60};

}  // namespace

std::chrono::milliseconds RetryPauses::next(std::optional<std::chrono::milliseconds> asked) {
    const auto pause = std::max(next_, std::min(asked.value_or(next_), kMaxRetryAfter));
    next_ = std::min(next_ * 2, kMaxRetryPause);
    return pause;
}

class SinkRunner::Implementation {
  public:
    Implementation(std::string name, SinkPace pace, Warn warn)
        : name_(std::move(name)), pace_(pace), warn_(std::move(warn)) {}

    ~Implementation() {
        end(true);
        join();
    }
    Implementation(const Implementation&) = delete;
    Implementation& operator=(const Implementation&) = delete;

    asio::any_io_executor executor() { return io_.get_executor(); }
    const std::string& name() const noexcept { return name_; }

    void start(std::unique_ptr<Sink> sink) {
        sink_ = std::move(sink);
        asio::co_spawn(io_, run(), asio::detached);
        thread_ = std::thread([this] { io_.run(); });
    }

    void take(SinkItem item) {
        const std::lock_guard lock(mutex_);
        const bool is_end = std::holds_alternative<EndRecord>(item.record);
        if (closed_ || (queue_.size() >= kMaxQueuedRecords && !is_end)) {
            ++counts_.dropped;
            return;
        }
        queue_.push_back({Clock::now(), std::move(item)});
        ++accepted_;
        if (queue_.size() == 1 || queue_.size() == pace_.max_batch) {
            wake();
        }
    }

    void close() { end(false); }

    void hurry() {
        const std::lock_guard lock(mutex_);
        hurried_ = accepted_;
        wake();
    }

    bool settle(std::chrono::milliseconds timeout) {
        hurry();
        std::unique_lock lock(mutex_);
        const std::uint64_t wanted = accepted_;
        const auto done = [&] { return settled_ >= wanted || failing_; };
        if (!settled_changed_.wait_for(lock, timeout, done)) {
            failing_ = true;
        }
        return settled_ >= wanted;
    }

    void join() {
        if (thread_.joinable()) {
            thread_.join();
        }
    }

    SinkCounts counts() const {
        const std::lock_guard lock(mutex_);
        return counts_;
    }

  private:
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

    void end(bool at_once) {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        at_once_ = at_once_ || at_once;
        wake();
    }

    void wake() {
        asio::post(io_, [this] { changed_.notify(); });
    }

    View look() const {
        const std::lock_guard lock(mutex_);
        return {queue_.size(), closed_, at_once_, settled_ < hurried_,
                queue_.empty() ? Clock::time_point() : queue_.front().since};
    }

    asio::awaitable<void> run() {
        try {
            co_await run_until(write_all(), flush_deadline());
        } catch (const std::exception& error) {
            trouble(error.what());
        }
        sink_.reset();
        leave_the_rest();
    }

    asio::awaitable<void> flush_deadline() {
        while (!look().closed) {
            co_await changed_.wait();
        }
        const Clock::time_point due = Clock::now() + kFlushTimeout;
        while (!look().at_once && Clock::now() < due) {
            co_await changed_.wait(due);
        }
    }

    asio::awaitable<void> write_all() {
        for (;;) {
            if (const bool more = co_await gather(); !more) {
                co_return;
            }
            next_batch();
            co_await write_batch();
        }
    }

    /// False: the queue is empty and closed.
    asio::awaitable<bool> gather() {
        for (;;) {
            const View view = look();
            if (view.closed || view.size >= pace_.max_batch || (view.hurried && view.size > 0)) {
                co_return view.size > 0;
            }
            if (view.size == 0) {
                co_await changed_.wait();
                continue;
            }
            const Clock::time_point due = view.oldest + pace_.linger;
            if (Clock::now() >= due) {
                co_return true;
            }
            co_await changed_.wait(due);
        }
    }

    void next_batch() {
        const std::lock_guard lock(mutex_);
        while (!queue_.empty() && batch_.size() < pace_.max_batch) {
            batch_.push_back(std::move(queue_.front().item));
            queue_.pop_front();
        }
    }

    asio::awaitable<void> write_batch() {
        RetryPauses pauses;
        const Clock::time_point give_up = Clock::now() + kRetryTimeout;
        for (;;) {
            const WriteResult result = co_await write_once();
            if (result) {
                batch_ended(result->refused, false);
                if (result->refused > 0) {
                    trouble("refused " + std::to_string(result->refused) + " records: " + result->why);
                } else if (counts().dropped > told_dropped_) {
                    trouble("is slower than the records arrive");
                }
                co_return;
            }
            failed();
            const SinkFailure& failure = result.error();
            if (failure.for_good || Clock::now() >= give_up) {
                batch_ended(batch_.size(), true);
                trouble(failure.message);
                co_return;
            }
            trouble(failure.message + "; trying again");
            co_await pause(pauses.next(failure.retry_after));
        }
    }

    asio::awaitable<WriteResult> write_once() {
        try {
            co_return co_await sink_->write(batch_);
        } catch (const boost::system::system_error& error) {
            if (is_abort(error.code())) {
                throw;
            }
            co_return SinkFailure{error.what(), true};
        } catch (const std::exception& error) {
            co_return SinkFailure{error.what(), true};
        }
    }

    /// The end of the run cuts it short once, for an immediate retry.
    asio::awaitable<void> pause(std::chrono::milliseconds span) {
        const bool was_closed = look().closed;
        const Clock::time_point due = Clock::now() + span;
        while (Clock::now() < due && look().closed == was_closed) {
            co_await changed_.wait(due);
        }
    }

    void failed() {
        const std::lock_guard lock(mutex_);
        failing_ = true;
        settled_changed_.notify_all();
    }

    void batch_ended(std::size_t lost, bool failing) {
        const std::lock_guard lock(mutex_);
        settled_ += batch_.size();
        failing_ = failing;
        settled_changed_.notify_all();
        lost = std::min(lost, batch_.size());
        counts_.written += batch_.size() - lost;
        counts_.dropped += lost;
        batch_.clear();
    }

    void leave_the_rest() {
        {
            const std::lock_guard lock(mutex_);
            closed_ = true;
            counts_.dropped += batch_.size() + queue_.size();
            failing_ = true;
            settled_changed_.notify_all();
            batch_.clear();
            queue_.clear();
        }
        if (const std::uint64_t dropped = counts().dropped; dropped > told_dropped_) {
            warn_("sink " + name_ + ": " + std::to_string(dropped) + " records of this run were lost" +
                  (last_trouble_.empty() ? std::string() : "; last: " + last_trouble_));
        }
    }

    /// Called on the sink's thread; warns at most once per kWarnInterval.
    void trouble(const std::string& text) {
        last_trouble_ = text;
        const Clock::time_point now = Clock::now();
        if (told_at_ && now - *told_at_ < kWarnInterval) {
            return;
        }
        told_at_ = now;
        const std::uint64_t dropped = counts().dropped;
        told_dropped_ = dropped;
        warn_("sink " + name_ + ": " + text +
              (dropped > 0 ? " (" + std::to_string(dropped) + " records lost so far)" : std::string()));
    }

    std::string name_;
    SinkPace pace_;
    Warn warn_;
    asio::io_context io_{1};
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

SinkRunner::SinkRunner(std::string name, SinkPace pace, Warn warn)
    : implementation_(std::make_unique<Implementation>(std::move(name), pace, std::move(warn))) {}

SinkRunner::~SinkRunner() = default;

asio::any_io_executor SinkRunner::executor() {
    return implementation_->executor();
}
void SinkRunner::start(std::unique_ptr<Sink> sink) {
    implementation_->start(std::move(sink));
}
void SinkRunner::take(SinkItem item) {
    implementation_->take(std::move(item));
}
void SinkRunner::close() {
    implementation_->close();
}
void SinkRunner::join() {
    implementation_->join();
}
void SinkRunner::hurry() {
    implementation_->hurry();
}
bool SinkRunner::settle(std::chrono::milliseconds timeout) {
    return implementation_->settle(timeout);
}
SinkCounts SinkRunner::counts() const {
    return implementation_->counts();
}
const std::string& SinkRunner::name() const noexcept {
    return implementation_->name();
}

}  // namespace distilld::sinks
