#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "base/error.hpp"
#include "pipeline/async/condition.hpp"

namespace distilld::slurm {

/// An answer that several coroutines wait for. One of them asks for all, at most once per interval; if it is cancelled,
/// another one asks within an interval. One executor.
template <class T>
class SharedAnswer {
  public:
    using Ask = std::function<boost::asio::awaitable<Result<T>>()>;
    struct Answer {
        std::uint64_t number = 0;  ///< from 1
        std::chrono::steady_clock::time_point at{};
        Result<T> value;
    };
    using AnswerPtr = std::shared_ptr<const Answer>;  ///< shared: a newer one may replace it while it is read

    SharedAnswer(boost::asio::any_io_executor executor, std::chrono::milliseconds interval, Ask ask)
        : interval_(interval), ask_(std::move(ask)), changed_(std::move(executor)) {}

    /// The number of the last answer; 0 = none yet.
    [[nodiscard]] std::uint64_t number() const { return last_ ? last_->number : 0; }

    /// An answer with a higher number than that.
    boost::asio::awaitable<AnswerPtr> after(std::uint64_t number) {
        while (this->number() <= number) {
            if (!asking_.expired()) {
                co_await changed_.wait(std::chrono::steady_clock::now() + interval_);
            } else if (is_fresh()) {
                co_await changed_.wait(last_->at + interval_);
            } else {
                co_await ask();
            }
        }
        co_return last_;
    }

    /// An answer that is younger than the interval.
    boost::asio::awaitable<AnswerPtr> fresh() { return after(is_fresh() ? number() - 1 : number()); }

  private:
    [[nodiscard]] bool is_fresh() const { return last_ && std::chrono::steady_clock::now() < last_->at + interval_; }

    boost::asio::awaitable<void> ask() {
        const auto turn = std::make_shared<int>();
        asking_ = turn;
        Result<T> value = co_await ask_();
        asking_.reset();
        last_ = std::make_shared<const Answer>(number() + 1, std::chrono::steady_clock::now(), std::move(value));
        changed_.notify();
    }

    std::chrono::milliseconds interval_;
    Ask ask_;
    Condition changed_;
    AnswerPtr last_;
    std::weak_ptr<int> asking_;  ///< held by the coroutine that asks, until it has ended in whatever way
};

}  // namespace distilld::slurm
