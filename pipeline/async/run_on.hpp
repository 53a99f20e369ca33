#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace distilld {

namespace detail {

template <class T>
struct Outcome {
    std::exception_ptr failure;
    std::optional<T> value;

    template <class Function>
    void run(Function& function) noexcept {
        try {
            value.emplace(function());
        } catch (...) {
            failure = std::current_exception();
        }
    }
    T take() {
        if (failure) {
            std::rethrow_exception(failure);
        }
        return std::move(*value);
    }
};

template <>
struct Outcome<void> {
    std::exception_ptr failure;

    template <class Function>
    void run(Function& function) noexcept {
        try {
            function();
        } catch (...) {
            failure = std::current_exception();
        }
    }
    void take() const {
        if (failure) {
            std::rethrow_exception(failure);
        }
    }
};

/// Posts `job` to `compute`, then completes the handler on the handler's own executor. The work guard keeps the
/// caller's event loop running in between: without it io_context::run() may return before the answer is there.
struct RunOnInitiation {
    template <class Handler, class Job>
    void operator()(Handler&& handler, boost::asio::any_io_executor compute, Job&& job) const {
        auto home = boost::asio::get_associated_executor(handler, compute);
        auto guard = boost::asio::make_work_guard(home);
        boost::asio::post(compute, [handler = std::forward<Handler>(handler), job = std::forward<Job>(job),
                                    guard = std::move(guard)]() mutable {
            job();
            auto executor = guard.get_executor();
            boost::asio::dispatch(executor, [handler = std::move(handler)]() mutable { std::move(handler)(); });
            guard.reset();
        });
    }
};

}  // namespace detail

/// Runs `function()` on another executor (a thread pool) and returns its value, or throws its exception, on the
/// caller's executor: the coroutine itself never leaves its strand. Cannot be interrupted: a cancelled caller still
/// waits for the function, so long functions should check a stop_token. The function object is destroyed on the compute
/// executor.
template <class Function>
boost::asio::awaitable<std::invoke_result_t<Function&>> run_on(boost::asio::any_io_executor compute,
                                                               Function function) {
    using Value = std::invoke_result_t<Function&>;
    auto outcome = std::make_shared<detail::Outcome<Value>>();
    auto job = [outcome, function = std::optional<Function>(std::move(function))]() mutable {
        outcome->run(*function);
        function.reset();
    };
    auto waiting = boost::asio::async_initiate<const boost::asio::use_awaitable_t<>, void()>(
        detail::RunOnInitiation{}, boost::asio::use_awaitable, std::move(compute), std::move(job));
    co_await std::move(waiting);
    co_return outcome->take();
}

}  // namespace distilld
