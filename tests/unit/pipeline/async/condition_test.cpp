#include "pipeline/async/condition.hpp"

#include <gtest/gtest.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/async/abort.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

/// Writes down how each wait ended: "notified", "deadline" or "aborted".
asio::awaitable<void> wait_once(Condition& condition, Condition::TimePoint deadline, std::vector<std::string>& log) {
    try {
        const bool notified = co_await condition.wait(deadline);
        log.emplace_back(notified ? "notified" : "deadline");
    } catch (const boost::system::system_error& error) {
        log.emplace_back(is_abort(error.code()) ? "aborted" : error.what());
    }
}

/// Starts `waiters` waits, does `then` when all of them wait, and runs until all have ended.
template <class Then>
std::vector<std::string> ends_of_waits(int waiters, Condition::TimePoint deadline, Then then) {
    asio::io_context io;
    Condition condition(io.get_executor());
    asio::cancellation_signal cancel_first;
    std::vector<std::string> log;
    for (int i = 0; i < waiters; ++i) {
        asio::co_spawn(io, wait_once(condition, deadline, log),
                       asio::bind_cancellation_slot(i == 0 ? cancel_first.slot() : asio::cancellation_slot(),
                                                    [](const std::exception_ptr&) {}));
    }
    asio::post(io, [&] { then(condition, cancel_first); });
    io.run_for(10s);
    return log;
}

TEST(Condition, NotifyWakesAllThatWait) {
    const auto ends = ends_of_waits(3, Condition::kNever, [](Condition& condition, auto&) { condition.notify(); });
    EXPECT_EQ(ends, (std::vector<std::string>{"notified", "notified", "notified"}));
}

TEST(Condition, ADeadlineEndsTheWait) {
    const auto past = std::chrono::steady_clock::now();
    EXPECT_EQ(ends_of_waits(1, past, [](Condition&, auto&) {}), std::vector<std::string>{"deadline"});
    EXPECT_EQ(ends_of_waits(1, past + 5ms, [](Condition&, auto&) {}), std::vector<std::string>{"deadline"});
}

TEST(Condition, EachWaiterHasItsOwnDeadline) {
    asio::io_context io;
    Condition condition(io.get_executor());
    std::vector<std::string> early;
    std::vector<std::string> late;
    const auto now = std::chrono::steady_clock::now();
    asio::co_spawn(io, wait_once(condition, now + 10min, late), [](const std::exception_ptr&) {});
    asio::co_spawn(io, wait_once(condition, now, early), [&](const std::exception_ptr&) { condition.notify(); });
    io.run_for(10s);
    EXPECT_EQ(early, std::vector<std::string>{"deadline"});
    EXPECT_EQ(late, std::vector<std::string>{"notified"});
}

TEST(Condition, ANotificationThatNobodyAwaitsIsNotRemembered) {
    asio::io_context io;
    Condition condition(io.get_executor());
    std::vector<std::string> log;
    condition.notify();
    asio::co_spawn(io, wait_once(condition, std::chrono::steady_clock::now(), log), [](const std::exception_ptr&) {});
    io.run();
    EXPECT_EQ(log, std::vector<std::string>{"deadline"});
}

TEST(Condition, CancellationEndsOnlyTheWaiterThatItIsMeantFor) {
    const auto ends = ends_of_waits(2, Condition::kNever, [](Condition& condition, auto& cancel_first) {
        cancel_first.emit(asio::cancellation_type::terminal);
        asio::post(condition.get_executor(), [&] { condition.notify(); });
    });
    EXPECT_EQ(ends, (std::vector<std::string>{"aborted", "notified"}));
}

// A receiver that was cancelled may not take what it was woken for.
TEST(Condition, CancellationWinsOverANotificationInEitherOrder) {
    const auto first = ends_of_waits(1, Condition::kNever, [](Condition& condition, auto& cancel_first) {
        cancel_first.emit(asio::cancellation_type::terminal);
        condition.notify();
    });
    EXPECT_EQ(first, std::vector<std::string>{"aborted"});
    const auto last = ends_of_waits(1, Condition::kNever, [](Condition& condition, auto& cancel_first) {
        condition.notify();
        cancel_first.emit(asio::cancellation_type::terminal);
    });
    EXPECT_EQ(last, std::vector<std::string>{"aborted"});
}

asio::awaitable<void> wait_after_cancellation(Condition& condition, std::vector<std::string>& log) {
    co_await asio::this_coro::throw_if_cancelled(false);
    for (int i = 0; i < 3; ++i) {
        co_await wait_once(condition, Condition::kNever, log);
    }
}

TEST(Condition, OneThatWasCancelledMayWaitOnAndIsCancelledAgain) {
    asio::io_context io;
    Condition condition(io.get_executor());
    asio::cancellation_signal cancel;
    std::vector<std::string> log;
    asio::co_spawn(io, wait_after_cancellation(condition, log),
                   asio::bind_cancellation_slot(cancel.slot(), [](const std::exception_ptr&) {}));
    // Each step follows when the one before has been seen.
    io.poll();
    cancel.emit(asio::cancellation_type::terminal);
    io.poll();
    condition.notify();
    io.poll();
    cancel.emit(asio::cancellation_type::terminal);
    io.poll();
    EXPECT_EQ(log, (std::vector<std::string>{"aborted", "notified", "aborted"}));
}

TEST(Condition, ADestroyedConditionEndsItsWaits) {
    asio::io_context io;
    auto condition = std::make_unique<Condition>(io.get_executor());
    std::vector<std::string> log;
    asio::co_spawn(io, wait_once(*condition, Condition::kNever, log), [](const std::exception_ptr&) {});
    asio::post(io, [&] { condition.reset(); });
    io.run_for(10s);
    EXPECT_EQ(log, std::vector<std::string>{"aborted"});
}

TEST(Condition, AContextMayBeDestroyedUnderAWaiter) {
    std::vector<std::string> log;
    auto io = std::make_unique<asio::io_context>();
    Condition condition(io->get_executor());
    asio::co_spawn(*io, wait_once(condition, Condition::kNever, log), [](const std::exception_ptr&) {});
    io->poll();
    io.reset();
    condition.notify();  // nobody is left in its list
    EXPECT_TRUE(log.empty());
}

}  // namespace
}  // namespace distilld
