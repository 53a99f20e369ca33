#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "pipeline/async/condition.hpp"

namespace distilld {

/// A bounded queue between coroutines of one strand. Sending waits while it is full, receiving while it is empty. After
/// close(), send() takes nothing more, and receive() returns what is left, then nullopt. (Asio's experimental channel
/// leaves waiting senders hanging on close, chriskohlhoff/asio#1318.)
template <class T>
class BoundedChannel {
  public:
    /// `capacity` is at least 1.
    BoundedChannel(const boost::asio::any_io_executor& executor, std::size_t capacity)
        : capacity_(capacity), readable_(executor), writable_(executor) {}

    BoundedChannel(const BoundedChannel&) = delete;
    BoundedChannel& operator=(const BoundedChannel&) = delete;

    /// False if the channel is closed; then the value is dropped. Throws operation_aborted when cancelled.
    boost::asio::awaitable<bool> send(T value) {
        while (!closed_ && items_.size() >= capacity_) {
            co_await writable_.wait();
        }
        if (closed_) {
            co_return false;
        }
        items_.push_back(std::move(value));
        readable_.notify();
        co_return true;
    }

    /// nullopt: closed and empty. Throws operation_aborted when cancelled.
    boost::asio::awaitable<std::optional<T>> receive() {
        while (items_.empty() && !closed_) {
            co_await readable_.wait();
        }
        std::optional<T> value;
        if (!items_.empty()) {
            value.emplace(std::move(items_.front()));
            items_.pop_front();
            writable_.notify();
        }
        co_return value;
    }

    void close() {
        closed_ = true;
        readable_.notify();
        writable_.notify();
    }

    [[nodiscard]] bool closed() const noexcept { return closed_; }
    [[nodiscard]] std::size_t size() const noexcept { return items_.size(); }
    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }

  private:
    std::size_t capacity_;
    bool closed_ = false;
    std::deque<T> items_;
    Condition readable_;
    Condition writable_;
};

}  // namespace distilld
