#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "pipeline/async/abort.hpp"

namespace distilld {

namespace detail {

template <class T>
boost::asio::awaitable<void> store_result(boost::asio::awaitable<T> operation, std::optional<T>& out) {
    out.emplace(co_await std::move(operation));
}

/// True when the operation ended (or was cancelled from outside) before the deadline.
inline boost::asio::awaitable<bool> race_with_timer(boost::asio::awaitable<void> operation,
                                                    std::chrono::nanoseconds deadline) {
    const auto executor = co_await boost::asio::this_coro::executor;
    boost::asio::steady_timer timer(executor);
    timer.expires_after(deadline);
    auto group = boost::asio::experimental::make_parallel_group(
        boost::asio::co_spawn(executor, std::move(operation), boost::asio::deferred),
        timer.async_wait(boost::asio::deferred));
    // The group completes when both have ended, so the operation is never left running.
    auto waiting = group.async_wait(boost::asio::experimental::wait_for_one(), boost::asio::use_awaitable);
    const auto [order, failure, expired] = co_await std::move(waiting);
    const bool timed_out = order[0] == 1 && !expired;
    if (timed_out) {
        co_return false;
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
    co_return true;
}

/// True when the operation ended (or was cancelled from outside) before the watch returned.
inline boost::asio::awaitable<bool> race_with_watch(boost::asio::awaitable<void> operation,
                                                    boost::asio::awaitable<void> watch) {
    const auto executor = co_await boost::asio::this_coro::executor;
    auto group = boost::asio::experimental::make_parallel_group(
        boost::asio::co_spawn(executor, std::move(operation), boost::asio::deferred),
        boost::asio::co_spawn(executor, std::move(watch), boost::asio::deferred));
    auto waiting = group.async_wait(boost::asio::experimental::wait_for_one(), boost::asio::use_awaitable);
    const auto [order, failure, watch_failure] = co_await std::move(waiting);
    if (order[0] == 1 && !watch_failure) {
        co_return false;
    }
    // Rethrows the original error, not the cancellation that it caused.
    if (watch_failure && !is_abort(watch_failure) && (!failure || is_abort(failure))) {
        std::rethrow_exception(watch_failure);
    }
    if (failure) {
        std::rethrow_exception(failure);
    }
    co_return true;
}

}  // namespace detail

/// Runs `operation` with a deadline. On expiry, it is cancelled (terminal cancellation) and awaited; the result is
/// nullopt in any case. Exceptions of the operation pass through, and so does cancellation of the caller. The executor
/// of the calling coroutine must be a strand or have one thread (Asio's parallel groups need it).
template <class T>
boost::asio::awaitable<std::optional<T>> with_deadline(boost::asio::awaitable<T> operation,
                                                       std::chrono::nanoseconds deadline) {
    std::optional<T> result;
    auto storing = detail::store_result(std::move(operation), result);
    const bool in_time = co_await detail::race_with_timer(std::move(storing), deadline);
    if (!in_time) {
        result.reset();
    }
    co_return result;
}

/// The same for an operation without a value: false = timed out.
inline boost::asio::awaitable<bool> with_deadline(boost::asio::awaitable<void> operation,
                                                  std::chrono::nanoseconds deadline) {
    return detail::race_with_timer(std::move(operation), deadline);
}

/// Runs `operation` until `watch` returns: the deadline is an event (a client has left). The operation is then
/// cancelled and awaited, and the result is nullopt. An operation that ends first cancels the watch, which is awaited
/// too. Exceptions of either pass through, and so does cancellation of the caller. Executor as above.
template <class T>
boost::asio::awaitable<std::optional<T>> run_until(boost::asio::awaitable<T> operation,
                                                   boost::asio::awaitable<void> watch) {
    std::optional<T> result;
    auto storing = detail::store_result(std::move(operation), result);
    const bool in_time = co_await detail::race_with_watch(std::move(storing), std::move(watch));
    if (!in_time) {
        result.reset();
    }
    co_return result;
}

/// The same for an operation without a value: false = the watch was first.
inline boost::asio::awaitable<bool> run_until(boost::asio::awaitable<void> operation,
                                              boost::asio::awaitable<void> watch) {
    return detail::race_with_watch(std::move(operation), std::move(watch));
}

}  // namespace distilld
