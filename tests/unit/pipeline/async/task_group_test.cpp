#include "pipeline/async/task_group.hpp"

#include <gtest/gtest.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

namespace distilld {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

/// Counts how tasks ended.
struct Endings {
    int finished = 0;
    int aborted = 0;
};

asio::awaitable<void> sleep_task(std::chrono::milliseconds delay, Endings& endings) {
    asio::steady_timer timer(co_await asio::this_coro::executor);
    timer.expires_after(delay);
    try {
        co_await timer.async_wait(asio::use_awaitable);
        ++endings.finished;
    } catch (const boost::system::system_error&) {
        ++endings.aborted;
        throw;
    }
}

asio::awaitable<void> failing_task(std::string message) {
    asio::steady_timer timer(co_await asio::this_coro::executor);
    timer.expires_after(1ms);
    co_await timer.async_wait(asio::use_awaitable);
    throw std::runtime_error(message);
}

/// Runs `body(group)` then joins; answers what join threw.
template <class Body>
std::string join_after(std::size_t limit, Body body) {
    asio::io_context io;
    TaskGroup group(io.get_executor(), limit);
    std::exception_ptr failure;
    asio::post(io, [&] {
        body(group);
        asio::co_spawn(io, group.join(), [&](std::exception_ptr error) { failure = error; });
    });
    io.run();
    EXPECT_EQ(group.size(), 0U);
    if (!failure) {
        return "";
    }
    try {
        std::rethrow_exception(failure);
    } catch (const std::exception& error) {
        return error.what();
    }
}

TEST(TaskGroup, JoinsAllTasks) {
    Endings endings;
    const auto thrown = join_after(10, [&](TaskGroup& group) {
        for (int i = 0; i < 10; ++i) {
            EXPECT_TRUE(group.spawn(sleep_task(std::chrono::milliseconds(i % 3), endings)));
        }
        EXPECT_FALSE(group.spawn(sleep_task(0ms, endings)));  // full
    });
    EXPECT_EQ(thrown, "");
    EXPECT_EQ(endings.finished, 10);
}

TEST(TaskGroup, AFailureCancelsTheOthersAndSurfacesAtJoin) {
    Endings endings;
    const auto thrown = join_after(10, [&](TaskGroup& group) {
        EXPECT_TRUE(group.spawn(sleep_task(10min, endings)));
        EXPECT_TRUE(group.spawn(failing_task("first")));
        EXPECT_TRUE(group.spawn(sleep_task(10min, endings)));
    });
    EXPECT_EQ(thrown, "first");
    EXPECT_EQ(endings.finished, 0);
    EXPECT_EQ(endings.aborted, 2);
}

TEST(TaskGroup, CancelEndsAllTasksWithoutAFailure) {
    Endings endings;
    const auto thrown = join_after(10, [&](TaskGroup& group) {
        EXPECT_TRUE(group.spawn(sleep_task(10min, endings)));
        EXPECT_TRUE(group.spawn(sleep_task(10min, endings)));
        group.cancel();
        EXPECT_FALSE(group.spawn(sleep_task(0ms, endings)));
    });
    EXPECT_EQ(thrown, "");
    EXPECT_EQ(endings.finished, 0);
}

asio::awaitable<void> joined_owner(Endings& endings, bool& after_join) {
    TaskGroup group(co_await asio::this_coro::executor);
    for (int i = 0; i < 3; ++i) {
        const bool started = group.spawn(sleep_task(10min, endings));
        EXPECT_TRUE(started);
    }
    co_await group.join();
    after_join = true;
    EXPECT_EQ(group.size(), 0U);
}

TEST(TaskGroup, ACancelledOwnerStillWaitsForItsTasks) {
    asio::io_context io;
    Endings endings;
    bool after_join = false;
    asio::cancellation_signal signal;
    asio::co_spawn(io, joined_owner(endings, after_join),
                   asio::bind_cancellation_slot(signal.slot(), [](std::exception_ptr) {}));
    asio::steady_timer later(io, 5ms);
    later.async_wait([&](boost::system::error_code) { signal.emit(asio::cancellation_type::terminal); });
    io.run();
    EXPECT_EQ(endings.aborted, 3);
    EXPECT_TRUE(after_join);
}

asio::awaitable<void> bounded_owner(Endings& endings, std::size_t& largest) {
    TaskGroup group(co_await asio::this_coro::executor, 2);
    for (int i = 0; i < 8; ++i) {
        const bool room = co_await group.wait_for_room();
        EXPECT_TRUE(room);
        const bool started = group.spawn(sleep_task(1ms, endings));
        EXPECT_TRUE(started);
        largest = std::max(largest, group.size());
    }
    co_await group.join();
}

TEST(TaskGroup, WaitsForRoom) {
    asio::io_context io;
    Endings endings;
    std::size_t largest = 0;
    std::exception_ptr failure;
    asio::co_spawn(io, bounded_owner(endings, largest), [&](std::exception_ptr error) { failure = error; });
    io.run();
    EXPECT_FALSE(failure);
    EXPECT_EQ(endings.finished, 8);
    EXPECT_EQ(largest, 2U);
}

}  // namespace
}  // namespace distilld
