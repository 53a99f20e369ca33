#include "pipeline/async/task_group.hpp"

#include <gtest/gtest.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <memory>
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
std::string join_after(TaskGroupOptions options, Body body) {
    asio::io_context io;
    TaskGroup group(io.get_executor(), std::move(options));
    std::exception_ptr failure;
    asio::post(io, [&] {
        body(group);
        asio::co_spawn(io, group.join(), [&](std::exception_ptr error) { failure = error; });
    });
    io.run_for(10s);
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
    const auto thrown = join_after({.max_tasks = 10, .on_failure = {}}, [&](TaskGroup& group) {
        for (int i = 0; i < 10; ++i) {
            EXPECT_TRUE(group.spawn(sleep_task(std::chrono::milliseconds(i % 3), endings)));
        }
        EXPECT_FALSE(group.spawn(sleep_task(0ms, endings)));  // full
        EXPECT_EQ(group.size(), 10U);
    });
    EXPECT_EQ(thrown, "");
    EXPECT_EQ(endings.finished, 10);
}

TEST(TaskGroup, AFailureCancelsTheOthersAndSurfacesAtJoin) {
    Endings endings;
    const auto thrown = join_after({}, [&](TaskGroup& group) {
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
    const auto thrown = join_after({}, [&](TaskGroup& group) {
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
        const TaskHandle started = group.spawn(sleep_task(10min, endings));
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

TEST(TaskGroup, AHandleCancelsItsTaskAlone) {
    Endings endings;
    TaskHandle kept;
    const auto thrown = join_after({}, [&](TaskGroup& group) {
        EXPECT_TRUE(group.spawn(sleep_task(1ms, endings)));
        kept = group.spawn(sleep_task(10min, endings));
        EXPECT_TRUE(group.spawn(sleep_task(1ms, endings)));
        kept.cancel();
        EXPECT_FALSE(group.closed());
    });
    EXPECT_EQ(thrown, "");
    EXPECT_EQ(endings.finished, 2);
    EXPECT_EQ(endings.aborted, 1);
    kept.cancel();  // task and group are gone
    TaskHandle().cancel();
}

TEST(TaskGroup, ATaskCancelledBeforeItsFirstStepNeverRuns) {
    asio::io_context io;
    Endings endings;
    TaskGroup group(io.get_executor());
    TaskHandle task = group.spawn(sleep_task(10min, endings));  // outside the executor: it starts later
    task.cancel();
    task.cancel();
    io.run_for(10s);
    EXPECT_EQ(endings.finished + endings.aborted, 0);
    EXPECT_EQ(group.size(), 0U);
}

asio::awaitable<void> cancels_its_group(TaskGroup& group) {
    group.cancel();
    co_return;
}

TEST(TaskGroup, ATaskMayCancelItsGroupBeforeItsFirstWait) {
    Endings endings;
    const auto thrown = join_after({}, [&](TaskGroup& group) {
        EXPECT_TRUE(group.spawn(sleep_task(10min, endings)));
        EXPECT_TRUE(group.spawn(cancels_its_group(group)));
    });
    EXPECT_EQ(thrown, "");
    EXPECT_EQ(endings.aborted, 1);
}

asio::awaitable<void> ends_at_once(int& runs) {
    ++runs;
    co_return;
}

TEST(TaskGroup, ATaskThatEndsAtOnceLeavesTheGroupAfterSpawn) {
    int runs = 0;
    const auto thrown = join_after({}, [&](TaskGroup& group) {
        EXPECT_TRUE(group.spawn(ends_at_once(runs)));
        EXPECT_EQ(group.size(), 1U);
        group.close();
        EXPECT_FALSE(group.spawn(ends_at_once(runs)));
    });
    EXPECT_EQ(thrown, "");
    EXPECT_EQ(runs, 1);
}

/// Answers its cancellation with an exception of its own.
asio::awaitable<void> fails_when_cancelled() {
    asio::steady_timer timer(co_await asio::this_coro::executor, 10min);
    try {
        co_await timer.async_wait(asio::use_awaitable);
    } catch (const boost::system::system_error&) {
        throw std::runtime_error("second");
    }
}

TEST(TaskGroup, TheFirstFailureIsKeptNotWhatItCaused) {
    const auto thrown = join_after({}, [&](TaskGroup& group) {
        EXPECT_TRUE(group.spawn(fails_when_cancelled()));
        EXPECT_TRUE(group.spawn(failing_task("first")));
        EXPECT_TRUE(group.spawn(fails_when_cancelled()));
    });
    EXPECT_EQ(thrown, "first");
}

TEST(TaskGroup, AFailureAfterACancellationIsStillOne) {
    const auto thrown = join_after({}, [&](TaskGroup& group) {
        EXPECT_TRUE(group.spawn(fails_when_cancelled()));
        group.cancel();
    });
    EXPECT_EQ(thrown, "second");
}

TEST(TaskGroup, FailuresGoToTheCallbackAndTheOthersGoOn) {
    Endings endings;
    std::vector<std::string> failures;
    TaskGroupOptions options;
    options.on_failure = [&](const std::exception_ptr& failure) {
        try {
            std::rethrow_exception(failure);
        } catch (const std::exception& error) {
            failures.emplace_back(error.what());
        }
    };
    const auto thrown = join_after(std::move(options), [&](TaskGroup& group) {
        EXPECT_TRUE(group.spawn(failing_task("one")));
        EXPECT_TRUE(group.spawn(sleep_task(5ms, endings)));
        EXPECT_TRUE(group.spawn(failing_task("two")));
        TaskHandle aborted = group.spawn(sleep_task(10min, endings));
        aborted.cancel();
    });
    EXPECT_EQ(thrown, "");
    EXPECT_EQ(failures, (std::vector<std::string>{"one", "two"}));
    EXPECT_EQ(endings.finished, 1);
    EXPECT_EQ(endings.aborted, 1);
}

asio::awaitable<void> watch_sizes(TaskGroup& group, std::vector<std::size_t>& sizes) {
    while (group.size() > 0) {
        sizes.push_back(group.size());
        co_await group.changed().wait();
    }
}

TEST(TaskGroup, SaysWhenATaskHasLeft) {
    asio::io_context io;
    Endings endings;
    std::vector<std::size_t> sizes;
    TaskGroup group(io.get_executor());
    TaskHandle first = group.spawn(sleep_task(10min, endings));
    TaskHandle second = group.spawn(sleep_task(10min, endings));
    asio::co_spawn(io, watch_sizes(group, sizes), [](const std::exception_ptr&) {});
    asio::post(io, [&] { first.cancel(); });
    asio::steady_timer later(io, 5ms);
    later.async_wait([&](boost::system::error_code) { second.cancel(); });
    io.run_for(10s);
    EXPECT_EQ(sizes, (std::vector<std::size_t>{2, 1}));
}

TEST(TaskGroup, AContextMayBeDestroyedUnderItsTasks) {
    Endings endings;
    auto io = std::make_unique<asio::io_context>();
    TaskGroup group(io->get_executor());
    TaskHandle task = group.spawn(sleep_task(10min, endings));
    io->poll();
    io.reset();
    EXPECT_EQ(endings.finished + endings.aborted, 0);
}

}  // namespace
}  // namespace distilld
