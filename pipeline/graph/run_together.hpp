#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <stdexcept>
#include <utility>

#include "pipeline/async/task_group.hpp"

namespace distilld {

/// Runs the stages of a graph until all have ended. The first to throw ends the others.
template <class... Stages>
boost::asio::awaitable<void> run_together(boost::asio::any_io_executor executor, Stages... stages) {
    TaskGroup group(executor);
    if (!(group.spawn(std::move(stages)) && ...)) {
        throw std::logic_error("the graph's task group is closed");
    }
    co_await group.join();
    const auto state = co_await boost::asio::this_coro::cancellation_state;
    if (state.cancelled() != boost::asio::cancellation_type::none) {
        throw boost::system::system_error(boost::asio::error::operation_aborted);
    }
}

}  // namespace distilld
