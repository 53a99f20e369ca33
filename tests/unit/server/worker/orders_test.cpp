#include "server/worker/orders.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <csignal>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "pipeline/async/task_group.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Notes what it is told.
class FakeGraph final : public RunningGraph {
  public:
    void cancel() override { told.emplace_back("cancel"); }
    void forgo_last_checkpoint() override { told.emplace_back("no last checkpoint"); }
    void request_checkpoint() override { told.emplace_back("checkpoint"); }
    void set_max_concurrent(std::uint32_t limit) override { told.push_back("limit " + std::to_string(limit)); }

    std::vector<std::string> told;
};

TEST(RunControl, PassesOrdersToTheGraphWhileItIsAttached) {
    RunControl control;
    FakeGraph graph;
    control.attach(graph);
    control.request_checkpoint();
    control.set_max_concurrent(8);
    control.cancel();
    EXPECT_THAT(graph.told, ElementsAre("checkpoint", "limit 8", "cancel"));
    EXPECT_TRUE(control.cancelled());
    control.detach();
    control.request_checkpoint();
    control.set_max_concurrent(9);
    control.cancel();
    EXPECT_EQ(graph.told.size(), 3U);
}

TEST(RunControl, KeepsALimitForTheGraphThatComesLater) {
    RunControl control;
    FakeGraph graph;
    control.set_max_concurrent(3);
    control.set_max_concurrent(4);
    control.attach(graph);
    EXPECT_THAT(graph.told, ElementsAre("limit 4"));
}

TEST(RunControl, ARankAsksRank0ToStopAndGoesOn) {
    RunControl control;
    FakeGraph graph;
    int asked = 0;
    control.join_ranks([&asked] { ++asked; });
    control.attach(graph);
    control.cancel();
    EXPECT_EQ(asked, 1);
    EXPECT_FALSE(control.cancelled());
    EXPECT_THAT(graph.told, IsEmpty());
    control.end();
    EXPECT_THAT(graph.told, ElementsAre("cancel"));
    control.leave_ranks();
    control.cancel();
    EXPECT_EQ(asked, 1);
}

TEST(RunControl, ARankThatWasStoppedWhileItJoinedAsksThen) {
    RunControl control;
    int asked = 0;
    control.cancel();
    control.join_ranks([&asked] { ++asked; });
    EXPECT_EQ(asked, 1);
    EXPECT_FALSE(control.cancelled());
}

TEST(RunControl, ACheckpointThatWasAskedForTooEarlyIsAskedForOnce) {
    RunControl control;
    FakeGraph first;
    FakeGraph second;
    control.request_checkpoint();
    control.attach(first);
    control.detach();
    control.attach(second);
    EXPECT_THAT(first.told, ElementsAre("checkpoint"));
    EXPECT_TRUE(second.told.empty());
}

TEST(RunControl, AGraphIsToldToForgoItsLastCheckpointBeforeItIsCancelled) {
    RunControl control;
    FakeGraph graph;
    control.forgo_last_checkpoint();
    control.cancel();
    control.attach(graph);
    EXPECT_THAT(graph.told, ElementsAre("no last checkpoint", "cancel"));
}

TEST(RunControl, CancelsAGraphThatComesTooLate) {
    RunControl control;
    FakeGraph graph;
    EXPECT_FALSE(control.cancelled());
    control.cancel();
    control.attach(graph);
    EXPECT_THAT(graph.told, ElementsAre("cancel"));
}

TEST(RunControl, CancelsTheWaitThatHoldsItsSlot) {
    RunControl control;
    auto seen = asio::cancellation_type::none;
    control.cancel_slot().assign([&seen](asio::cancellation_type type) { seen = type; });
    control.cancel();
    EXPECT_EQ(seen, asio::cancellation_type::terminal);
}

/// A worker's channel whose other end the test writes to; the orders are followed until the reading ends.
class FollowOrders : public ::testing::Test {
  protected:
    FollowOrders() {
        std::array<int, 2> pair{};
        if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()) != 0) {
            throw std::runtime_error("socketpair");
        }
        parent_ = pair[0];
        channel_ = make_worker_channel(io_.get_executor(), pair[1]).value();
        control_.attach(graph_);
    }
    ~FollowOrders() override { hang_up(); }

    void write(std::string_view text) {
        while (!text.empty()) {
            const ssize_t sent = ::send(parent_, text.data(), text.size(), MSG_NOSIGNAL);
            if (sent <= 0) {
                throw std::runtime_error("send");
            }
            text.remove_prefix(static_cast<std::size_t>(sent));
        }
    }
    void order(const DownMessage& message) { write(encode(message)); }
    void hang_up() {
        if (parent_ >= 0) {
            ::close(parent_);
        }
        parent_ = -1;
    }
    /// Follows the orders to the end of the channel.
    void follow() {
        bool ended = false;
        asio::co_spawn(io_, follow_orders(*channel_, control_), [&](const std::exception_ptr& thrown) {
            ended = true;
            EXPECT_FALSE(thrown);
            channel_->close();
        });
        io_.run_for(std::chrono::seconds(30));
        EXPECT_TRUE(ended);
    }

    asio::io_context io_{1};
    FakeGraph graph_;
    RunControl control_;
    std::unique_ptr<WorkerChannel> channel_;
    int parent_ = -1;
};

TEST_F(FollowOrders, EachOrderReachesTheGraphAndTheEndOfTheParentCancels) {
    order(CheckpointCommand{});
    order(SetLimitCommand{8});
    order(CancelCommand{});
    order(CancelCommand{false});
    hang_up();
    follow();
    EXPECT_THAT(graph_.told, ElementsAre("checkpoint", "limit 8", "cancel", "no last checkpoint", "cancel", "cancel"));
}

TEST_F(FollowOrders, PassesOverWhatIsNoOrder) {
    write("this is no JSON\n{\"type\":\"dance\"}\n");
    order(WorkerStart{"{}", false, ""});
    order(CheckpointCommand{});
    hang_up();
    follow();
    EXPECT_THAT(graph_.told, ElementsAre("checkpoint", "cancel"));
}

TEST_F(FollowOrders, AChannelOfNoUseAnyMoreCancels) {
    std::thread writer([this] {
        const std::string piece(1U << 20U, 'x');
        for (std::size_t sent = 0; sent <= kWorkerMessageLimit; sent += piece.size()) {
            if (::send(parent_, piece.data(), piece.size(), MSG_NOSIGNAL) <= 0) {
                break;
            }
        }
    });
    follow();
    writer.join();
    EXPECT_THAT(graph_.told, ElementsAre("cancel"));
}

/// Runs a follower until `done`, asked now and then, then ends it as its owner does.
asio::awaitable<void> own(asio::awaitable<void> follower, std::function<bool()> done) {
    const auto executor = co_await asio::this_coro::executor;
    TaskGroup group(executor);
    EXPECT_TRUE(group.spawn(std::move(follower)));
    asio::steady_timer pause(executor);
    do {
        pause.expires_after(std::chrono::milliseconds(5));
        co_await pause.async_wait(asio::use_awaitable);
    } while (!done());
    group.cancel();
    co_await group.join();
}

void run_to_the_end(asio::io_context& io, asio::awaitable<void> task) {
    bool ended = false;
    asio::co_spawn(io, std::move(task), [&ended](const std::exception_ptr& thrown) {
        ended = true;
        EXPECT_FALSE(thrown);
    });
    io.run_for(std::chrono::seconds(30));
    EXPECT_TRUE(ended);
}

TEST_F(FollowOrders, ItsOwnerEndsItWithoutAnOrder) {
    const auto idle = [this] {
        control_.detach();
        return true;
    };
    run_to_the_end(io_, own(follow_orders(*channel_, control_), idle));
    EXPECT_THAT(graph_.told, IsEmpty());
}

TEST(FollowSignals, EachSignalCancels) {
    asio::io_context io(1);
    asio::signal_set signals(io, SIGTERM, SIGINT);
    RunControl control;
    FakeGraph graph;
    control.attach(graph);
    ::kill(::getpid(), SIGTERM);
    ::kill(::getpid(), SIGINT);
    run_to_the_end(io, own(follow_signals(signals, control), [&graph] { return graph.told.size() >= 2; }));
    EXPECT_THAT(graph.told, ElementsAre("cancel", "cancel"));
}

}  // namespace
}  // namespace distilld
