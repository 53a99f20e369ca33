#include "pipeline/async/bounded_channel.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <exception>
#include <memory>
#include <vector>

namespace distilld {
namespace {

namespace asio = boost::asio;

using Channel = BoundedChannel<std::unique_ptr<int>>;

asio::awaitable<void> produce(Channel& channel, int count, std::vector<int>& refused) {
    for (int i = 0; i < count; ++i) {
        const bool taken = co_await channel.send(std::make_unique<int>(i));
        if (!taken) {
            refused.push_back(i);
        }
    }
}

asio::awaitable<void> consume(Channel& channel, std::vector<int>& received, std::size_t& max_size) {
    for (;;) {
        max_size = std::max(max_size, channel.size());
        auto item = co_await channel.receive();
        if (!item) {
            co_return;
        }
        received.push_back(**item);
    }
}

TEST(BoundedChannel, KeepsOrderAndBound) {
    asio::io_context io;
    Channel channel(io.get_executor(), 3);
    std::vector<int> refused;
    std::vector<int> received;
    std::size_t max_size = 0;
    asio::co_spawn(io, produce(channel, 50, refused), [&](std::exception_ptr) { channel.close(); });
    asio::co_spawn(io, consume(channel, received, max_size), asio::detached);
    io.run();
    ASSERT_EQ(received.size(), 50U);
    for (int i = 0; i < 50; ++i) {
        EXPECT_EQ(received[static_cast<std::size_t>(i)], i);
    }
    EXPECT_TRUE(refused.empty());
    EXPECT_EQ(max_size, 3U);
}

TEST(BoundedChannel, CloseFreesWaitingSendersAndKeepsWhatIsInside) {
    asio::io_context io;
    Channel channel(io.get_executor(), 2);
    std::vector<int> refused;
    asio::co_spawn(io, produce(channel, 4, refused), asio::detached);
    asio::post(io, [&] { channel.close(); });
    io.run();
    EXPECT_EQ(refused, (std::vector<int>{2, 3}));
    std::vector<int> received;
    std::size_t max_size = 0;
    asio::co_spawn(io, consume(channel, received, max_size), asio::detached);
    io.restart();
    io.run();
    EXPECT_EQ(received, (std::vector<int>{0, 1}));
}

TEST(BoundedChannel, AWaitingReceiverCanBeCancelled) {
    asio::io_context io;
    Channel channel(io.get_executor(), 1);
    std::vector<int> received;
    std::size_t max_size = 0;
    asio::cancellation_signal signal;
    std::exception_ptr failure;
    asio::co_spawn(io, consume(channel, received, max_size),
                   asio::bind_cancellation_slot(signal.slot(), [&](std::exception_ptr error) { failure = error; }));
    asio::post(io, [&] { signal.emit(asio::cancellation_type::terminal); });
    io.run();
    ASSERT_TRUE(failure);
    EXPECT_THROW(std::rethrow_exception(failure), boost::system::system_error);
    EXPECT_TRUE(received.empty());
    std::vector<int> refused;
    asio::co_spawn(io, produce(channel, 2, refused), [&](std::exception_ptr) { channel.close(); });
    asio::co_spawn(io, consume(channel, received, max_size), asio::detached);
    io.restart();
    io.run();
    EXPECT_EQ(received, (std::vector<int>{0, 1}));
}

}  // namespace
}  // namespace distilld
