#include "server/sinks/sink_runner.hpp"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/system/system_error.hpp>
#include <utility>

#include "pipeline/async/abort.hpp"
#include "pipeline/async/deadline.hpp"

namespace distilld::sinks {

namespace asio = boost::asio;

namespace {

constexpr std::chrono::seconds kWarnInterval{60};

}  // namespace

std::chrono::milliseconds RetryPauses::next(std::optional<std::chrono::milliseconds> asked) {
    const auto pause = std::max(next_, std::min(asked.value_or(next_), kMaxRetryAfter));
    next_ = std::min(next_ * 2, kMaxRetryPause);
    return pause;
}

SinkRunner::~SinkRunner() {
    end(true);
    join();
}

void SinkRunner::start(std::unique_ptr<Sink> sink) {
    sink_ = std::move(sink);
    asio::co_spawn(io_, run(), asio::detached);
    thread_ = std::thread([this] { io_.run(); });
}

void SinkRunner::take(SinkItem item) {
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

void SinkRunner::close() {
    end(false);
}

void SinkRunner::hurry() {
    const std::lock_guard lock(mutex_);
    hurried_ = accepted_;
    wake();
}

bool SinkRunner::settle(std::chrono::milliseconds timeout) {
    hurry();
    std::unique_lock lock(mutex_);
    const std::uint64_t wanted = accepted_;
    const auto done = [&] { return settled_ >= wanted || failing_; };
    if (!settled_changed_.wait_for(lock, timeout, done)) {
        failing_ = true;
    }
    return settled_ >= wanted;
}

void SinkRunner::join() {
    if (thread_.joinable()) {
        thread_.join();
    }
}

SinkCounts SinkRunner::counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
}

void SinkRunner::end(bool at_once) {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    at_once_ = at_once_ || at_once;
    wake();
}

void SinkRunner::wake() {
    asio::post(io_, [this] { changed_.notify(); });
}

SinkRunner::View SinkRunner::look() const {
    const std::lock_guard lock(mutex_);
    return {queue_.size(), closed_, at_once_, settled_ < hurried_,
            queue_.empty() ? Clock::time_point() : queue_.front().since};
}

asio::awaitable<void> SinkRunner::run() {
    try {
        co_await run_until(write_all(), flush_deadline());
    } catch (const std::exception& error) {
        trouble(error.what());
    }
    sink_.reset();
    leave_the_rest();
}

asio::awaitable<void> SinkRunner::flush_deadline() {
    while (!look().closed) {
        co_await changed_.wait();
    }
    const Clock::time_point due = Clock::now() + kFlushTimeout;
    while (!look().at_once && Clock::now() < due) {
        co_await changed_.wait(due);
    }
}

asio::awaitable<void> SinkRunner::write_all() {
    for (;;) {
        if (const bool more = co_await gather(); !more) {
            co_return;
        }
        next_batch();
        co_await write_batch();
    }
}

asio::awaitable<bool> SinkRunner::gather() {
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

void SinkRunner::next_batch() {
    const std::lock_guard lock(mutex_);
    while (!queue_.empty() && batch_.size() < pace_.max_batch) {
        batch_.push_back(std::move(queue_.front().item));
        queue_.pop_front();
    }
}

asio::awaitable<void> SinkRunner::write_batch() {
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

asio::awaitable<WriteResult> SinkRunner::write_once() {
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

asio::awaitable<void> SinkRunner::pause(std::chrono::milliseconds span) {
    const bool was_closed = look().closed;
    const Clock::time_point due = Clock::now() + span;
    while (Clock::now() < due && look().closed == was_closed) {
        co_await changed_.wait(due);
    }
}

void SinkRunner::failed() {
    const std::lock_guard lock(mutex_);
    failing_ = true;
    settled_changed_.notify_all();
}

void SinkRunner::batch_ended(std::size_t lost, bool failing) {
    const std::lock_guard lock(mutex_);
    settled_ += batch_.size();
    failing_ = failing;
    settled_changed_.notify_all();
    lost = std::min(lost, batch_.size());
    counts_.written += batch_.size() - lost;
    counts_.dropped += lost;
    batch_.clear();
}

void SinkRunner::leave_the_rest() {
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

void SinkRunner::trouble(const std::string& text) {
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

}  // namespace distilld::sinks
