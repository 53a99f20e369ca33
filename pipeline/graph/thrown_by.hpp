#pragma once

#include <boost/asio/awaitable.hpp>
#include <exception>
#include <utility>

namespace distilld {

/// Awaits `operation` and returns what it threw, or null: for cleanup that must run however a coroutine ends. (Not in a
/// destructor: a frame may be destroyed after the objects that it refers to.)
inline boost::asio::awaitable<std::exception_ptr> thrown_by(boost::asio::awaitable<void> operation) {
    try {
        co_await std::move(operation);
    } catch (...) {
        co_return std::current_exception();
    }
    co_return nullptr;
}

inline void rethrow_if(const std::exception_ptr& thrown) {
    if (thrown) {
        std::rethrow_exception(thrown);
    }
}

}  // namespace distilld
