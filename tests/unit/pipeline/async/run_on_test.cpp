#include "pipeline/async/run_on.hpp"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/thread_pool.hpp>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

namespace distilld {
namespace {

namespace asio = boost::asio;

struct Observed {
    std::thread::id before;
    std::thread::id inside;
    std::thread::id after;
    int value = 0;
};

asio::awaitable<void> observe(asio::any_io_executor compute, std::shared_ptr<Observed> seen) {
    seen->before = std::this_thread::get_id();
    auto work = [seen, owned = std::make_unique<int>(42)] {
        seen->inside = std::this_thread::get_id();
        return *owned;
    };
    seen->value = co_await run_on(compute, std::move(work));
    seen->after = std::this_thread::get_id();
}

TEST(RunOn, ComputesElsewhereAndComesBack) {
    asio::io_context io;
    asio::thread_pool pool(1);
    auto seen = std::make_shared<Observed>();
    asio::co_spawn(io, observe(pool.get_executor(), seen), asio::detached);
    io.run();  // returns only when the answer was delivered, thanks to the work guard
    EXPECT_EQ(seen->value, 42);
    EXPECT_EQ(seen->before, std::this_thread::get_id());
    EXPECT_EQ(seen->after, std::this_thread::get_id());
    EXPECT_NE(seen->inside, std::this_thread::get_id());
}

asio::awaitable<void> throwing(asio::any_io_executor compute) {
    auto work = []() -> int { throw std::runtime_error("no luck"); };
    co_await run_on(compute, std::move(work));
}

TEST(RunOn, CarriesExceptionsOver) {
    asio::io_context io;
    asio::thread_pool pool(1);
    std::exception_ptr failure;
    asio::co_spawn(io, throwing(pool.get_executor()), [&](std::exception_ptr error) { failure = error; });
    io.run();
    ASSERT_TRUE(failure);
    EXPECT_THROW(std::rethrow_exception(failure), std::runtime_error);
}

asio::awaitable<void> many(asio::any_io_executor compute, int rounds, std::shared_ptr<long> sum) {
    for (int i = 0; i < rounds; ++i) {
        auto work = [i] { return i; };
        *sum += co_await run_on(compute, std::move(work));
    }
}

TEST(RunOn, ManyCallersOfOneStrandShareAPool) {
    // The sum is not atomic: the strand alone protects it, on whatever thread the loop runs.
    asio::io_context io;
    asio::thread_pool pool(3);
    auto strand = asio::make_strand(io);
    auto sum = std::make_shared<long>(0);
    for (int i = 0; i < 20; ++i) {
        asio::co_spawn(strand, many(pool.get_executor(), 100, sum), asio::detached);
    }
    std::thread other([&] { io.run(); });
    io.run();
    other.join();
    EXPECT_EQ(*sum, 20L * 4950);
}

asio::awaitable<void> no_value(asio::any_io_executor compute, std::shared_ptr<int> done) {
    auto work = [done] { ++*done; };
    co_await run_on(compute, std::move(work));
    ++*done;
}

TEST(RunOn, FunctionsMayReturnNothing) {
    asio::io_context io;
    asio::thread_pool pool(1);
    auto done = std::make_shared<int>(0);
    asio::co_spawn(io, no_value(pool.get_executor(), done), asio::detached);
    io.run();
    pool.join();
    EXPECT_EQ(*done, 2);
    EXPECT_EQ(done.use_count(), 1);
}

}  // namespace
}  // namespace distilld
