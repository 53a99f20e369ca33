#include "pipeline/async/deadline.hpp"

#include <gtest/gtest.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <memory>
#include <stdexcept>
#include <string>

namespace distilld {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

asio::awaitable<std::string> answer_after(std::chrono::milliseconds delay, std::shared_ptr<int> witness) {
    asio::steady_timer timer(co_await asio::this_coro::executor);
    timer.expires_after(delay);
    co_await timer.async_wait(asio::use_awaitable);
    ++*witness;
    co_return "answer";
}

asio::awaitable<std::string> fail_at_once() {
    throw std::runtime_error("broken");
    co_return "";
}

template <class T>
T run(asio::awaitable<T> task) {
    asio::io_context io;
    std::exception_ptr failure;
    std::optional<T> result;
    asio::co_spawn(io, std::move(task), [&](std::exception_ptr error, T value) {
        failure = error;
        result = std::move(value);
    });
    io.run();
    if (failure) {
        std::rethrow_exception(failure);
    }
    return std::move(*result);
}

TEST(Deadline, GivesTheValueOfAnOperationThatIsInTime) {
    auto witness = std::make_shared<int>(0);
    const auto result = run(with_deadline(answer_after(1ms, witness), 10min));
    EXPECT_EQ(result, std::optional<std::string>("answer"));
    EXPECT_EQ(*witness, 1);
}

TEST(Deadline, CancelsAndReleasesAnOperationThatIsLate) {
    auto witness = std::make_shared<int>(0);
    const auto result = run(with_deadline(answer_after(10min, witness), 1ms));
    EXPECT_EQ(result, std::nullopt);
    EXPECT_EQ(*witness, 0);
    EXPECT_EQ(witness.use_count(), 1);
}

TEST(Deadline, PassesExceptionsOnWithoutWaitingForTheTimer) {
    EXPECT_THROW(run(with_deadline(fail_at_once(), 10min)), std::runtime_error);
}

TEST(Deadline, CancellationOfTheCallerEndsTheOperation) {
    asio::io_context io;
    asio::cancellation_signal signal;
    auto witness = std::make_shared<int>(0);
    std::exception_ptr failure;
    asio::co_spawn(io, with_deadline(answer_after(10min, witness), 20min),
                   asio::bind_cancellation_slot(
                       signal.slot(), [&](std::exception_ptr error, std::optional<std::string>) { failure = error; }));
    asio::post(io, [&] { signal.emit(asio::cancellation_type::terminal); });
    io.run();
    ASSERT_TRUE(failure);
    EXPECT_THROW(std::rethrow_exception(failure), boost::system::system_error);
    EXPECT_EQ(witness.use_count(), 1);
}

asio::awaitable<bool> nested(std::shared_ptr<int> witness) {
    const auto inner = co_await with_deadline(answer_after(10min, witness), 1ms);
    const auto after = co_await with_deadline(answer_after(1ms, witness), 10min);
    co_return !inner && after && *after == "answer";
}

TEST(Deadline, TheCallerGoesOnAfterAnExpiry) {
    auto witness = std::make_shared<int>(0);
    EXPECT_TRUE(run(nested(witness)));
    EXPECT_EQ(*witness, 1);
}

asio::awaitable<void> sleep_for(std::chrono::milliseconds delay) {
    asio::steady_timer timer(co_await asio::this_coro::executor);
    timer.expires_after(delay);
    co_await timer.async_wait(asio::use_awaitable);
}

TEST(Deadline, TellsAboutOperationsWithoutAValue) {
    EXPECT_TRUE(run(with_deadline(sleep_for(1ms), 10min)));
    EXPECT_FALSE(run(with_deadline(sleep_for(10min), 1ms)));
}

TEST(RunUntil, GivesTheValueOfAnOperationThatEndsFirst) {
    auto witness = std::make_shared<int>(0);
    const auto result = run(run_until(answer_after(1ms, witness), sleep_for(10min)));
    EXPECT_EQ(result, std::optional<std::string>("answer"));
    EXPECT_TRUE(run(run_until(sleep_for(1ms), sleep_for(10min))));
}

TEST(RunUntil, CancelsAndReleasesTheOperationWhenTheWatchReturns) {
    auto witness = std::make_shared<int>(0);
    const auto result = run(run_until(answer_after(10min, witness), sleep_for(1ms)));
    EXPECT_EQ(result, std::nullopt);
    EXPECT_EQ(*witness, 0);
    EXPECT_EQ(witness.use_count(), 1);
    EXPECT_FALSE(run(run_until(sleep_for(10min), sleep_for(1ms))));
}

asio::awaitable<void> broken_watch() {
    co_await sleep_for(1ms);
    throw std::runtime_error("the watch is broken");
}

TEST(RunUntil, PassesOnWhatWentWrongNotTheCancellationItCaused) {
    EXPECT_THROW(run(run_until(fail_at_once(), sleep_for(10min))), std::runtime_error);
    EXPECT_THROW(run(run_until(sleep_for(10min), broken_watch())), std::runtime_error);
}

TEST(RunUntil, CancellationOfTheCallerEndsBoth) {
    asio::io_context io;
    asio::cancellation_signal signal;
    auto witness = std::make_shared<int>(0);
    std::exception_ptr failure;
    asio::co_spawn(io, run_until(answer_after(10min, witness), sleep_for(20min)),
                   asio::bind_cancellation_slot(
                       signal.slot(), [&](std::exception_ptr error, std::optional<std::string>) { failure = error; }));
    asio::post(io, [&] { signal.emit(asio::cancellation_type::terminal); });
    io.run_for(10s);
    EXPECT_TRUE(is_abort(failure));
    EXPECT_EQ(witness.use_count(), 1);
}

}  // namespace
}  // namespace distilld
