#include "server/protocol/stdio_bridge.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace distilld {
namespace {

/// A worker whose parent speaks through pipes.
class StdioBridgeTest : public ::testing::Test {
  protected:
    StdioBridgeTest() {
        std::signal(SIGPIPE, SIG_IGN);  // as in a worker
        Descriptor in;
        Descriptor out;
        join(in, to_worker_);
        join(from_worker_, out);
        bridge_ = StdioBridge::make(std::move(in), std::move(out)).value();
        socket_ = Descriptor(bridge_->release_socket());
    }
    static void join(Descriptor& reads, Descriptor& writes) {
        std::array<int, 2> pair{};
        EXPECT_EQ(::pipe(pair.data()), 0);
        reads = Descriptor(pair[0]);
        writes = Descriptor(pair[1]);
    }
    static void write(const Descriptor& to, std::string_view text) {
        while (!text.empty()) {
            const ssize_t written = ::write(to.get(), text.data(), text.size());
            ASSERT_GT(written, 0);
            text.remove_prefix(static_cast<std::size_t>(written));
        }
    }
    /// Up to `size` bytes; fewer: the other end is closed.
    static std::string read(const Descriptor& from, std::size_t size) {
        std::string text;
        std::array<char, 4096> piece{};
        while (text.size() < size) {
            const ssize_t got = ::read(from.get(), piece.data(), std::min(piece.size(), size - text.size()));
            if (got <= 0) {
                break;
            }
            text.append(piece.data(), static_cast<std::size_t>(got));
        }
        return text;
    }

    Descriptor to_worker_, from_worker_;
    std::unique_ptr<StdioBridge> bridge_;
    Descriptor socket_;  ///< the worker's
};

TEST_F(StdioBridgeTest, CopiesBothWaysHoweverLittleEachSideTakes) {
    const std::string order(3'000'000, 'o');  // more than pipes and socket hold
    const std::string answer(3'000'000, 'a');
    std::thread parent([&] { write(to_worker_, order); });
    EXPECT_EQ(read(socket_, order.size()), order);
    parent.join();
    std::thread worker([&] { write(socket_, answer); });
    EXPECT_EQ(read(from_worker_, answer.size()), answer);
    worker.join();
}

TEST_F(StdioBridgeTest, EndsWhenTheParentHasTheLastWord) {
    const std::string last(30'000, 'x');
    write(socket_, last);
    socket_ = Descriptor();
    bridge_.reset();
    EXPECT_EQ(read(from_worker_, 100'000), last) << "and then the end";
}

TEST_F(StdioBridgeTest, TheEndOfStdinIsTheParentsEnd) {
    write(to_worker_, "cancel");
    to_worker_ = Descriptor();
    EXPECT_EQ(read(socket_, 100), "cancel");
    write(socket_, "cancelled");
    EXPECT_EQ(read(from_worker_, 9), "cancelled") << "it may still read";
}

TEST_F(StdioBridgeTest, AParentThatDoesNotReadIsGone) {
    from_worker_ = Descriptor();
    write(socket_, "x");
    EXPECT_EQ(read(socket_, 1), "") << "closed";
}

}  // namespace
}  // namespace distilld
