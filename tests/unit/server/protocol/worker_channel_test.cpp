#include "server/protocol/worker_channel.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_future.hpp>
#include <future>
#include <stdexcept>
#include <thread>

#include "server/protocol/line_channel.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using ::testing::HasSubstr;

/// The worker's channel on a thread of its own; the test holds the parent's end.
class WorkerChannelTest : public ::testing::Test {
  protected:
    WorkerChannelTest() : work_(asio::make_work_guard(context_)) {
        std::array<int, 2> pair{};
        if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()) != 0) {
            throw std::runtime_error("socketpair");
        }
        parent_ = pair[0];
        channel_ = make_worker_channel(context_.get_executor(), pair[1]).value();
        thread_ = std::thread([this] { context_.run(); });
    }
    ~WorkerChannelTest() override {
        asio::post(context_, [this] { channel_->close(); });
        work_.reset();
        thread_.join();
        close_parent();
    }
    void close_parent() {
        if (parent_ >= 0) {
            ::close(parent_);
        }
        parent_ = -1;
    }
    void write(std::string_view text) {
        ASSERT_EQ(::send(parent_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    }
    std::string read_line() {
        for (;;) {
            const auto end = read_.find('\n');
            if (end != std::string::npos) {
                std::string line = read_.substr(0, end);
                read_.erase(0, end + 1);
                return line;
            }
            pollfd wait{parent_, POLLIN, 0};
            if (::poll(&wait, 1, 20000) <= 0) {
                throw std::runtime_error("no line within 20 s");
            }
            std::array<char, 65536> piece{};
            const ssize_t got = ::recv(parent_, piece.data(), piece.size(), 0);
            if (got <= 0) {
                throw std::runtime_error("closed");
            }
            read_.append(piece.data(), static_cast<std::size_t>(got));
        }
    }
    UpMessage read_message() { return decode_up(read_line()).value(); }
    template <class T>
    T wait(std::future<T> future) {
        if (future.wait_for(std::chrono::seconds(20)) != std::future_status::ready) {
            throw std::runtime_error("stuck");
        }
        return future.get();
    }
    Result<std::optional<DownMessage>> receive() {
        return wait(asio::co_spawn(context_, channel_->receive(), asio::use_future));
    }
    bool flush(std::chrono::milliseconds deadline) {
        return wait(asio::co_spawn(context_, channel_->flush(deadline), asio::use_future));
    }

    asio::io_context context_;
    asio::executor_work_guard<asio::io_context::executor_type> work_;
    std::unique_ptr<WorkerChannel> channel_;
    int parent_ = -1;
    std::string read_;
    std::thread thread_;
};

TEST_F(WorkerChannelTest, SaysHelloFirst) {
    channel_->send(UpMessage(LogEvent{"info", "next"}));
    EXPECT_EQ(std::get<HelloMessage>(read_message()).pid, ::getpid());
    EXPECT_EQ(std::get<LogEvent>(read_message()).message, "next");
}

TEST_F(WorkerChannelTest, ReceivesOrdersInOrderHoweverTheyAreCut) {
    WorkerStart start;
    start.spec_json = "{\"name\":\"x\"}";
    const std::string text = encode(DownMessage(start)) + encode(DownMessage(CancelCommand{}));
    write(text.substr(0, 10));
    std::thread later([this, &text] { write(text.substr(10)); });
    EXPECT_EQ(std::get<WorkerStart>(receive().value().value()).spec_json, start.spec_json);
    later.join();
    EXPECT_TRUE(std::holds_alternative<CancelCommand>(receive().value().value()));
}

TEST_F(WorkerChannelTest, GoesOnAfterALineThatIsNoMessage) {
    write("garbage\n" + encode(DownMessage(CancelCommand{})));
    EXPECT_FALSE(receive().has_value());
    EXPECT_TRUE(std::holds_alternative<CancelCommand>(receive().value().value()));
}

TEST_F(WorkerChannelTest, TheParentsEndIsTheEndOfOrders) {
    write("{\"type\":\"canc");  // in the middle of a line
    close_parent();
    EXPECT_FALSE(receive().value().has_value());
    channel_->send(UpMessage(LogEvent{"info", "to nobody"}));
    flush(std::chrono::seconds(10));  // ends, whatever it says
    EXPECT_FALSE(receive().value().has_value());
}

TEST_F(WorkerChannelTest, KeepsAllButProgressWhileTheParentDoesNotRead) {
    constexpr std::uint64_t kSteps = 4000;  // some megabytes: more than socket and queue hold
    constexpr std::uint64_t kLogEvery = 200;
    for (std::uint64_t step = 1; step <= kSteps; ++step) {
        ProgressEvent progress;
        progress.step = step;
        channel_->send(UpMessage(progress));
        if (step % kLogEvery == 0) {
            channel_->send(UpMessage(LogEvent{"info", std::to_string(step)}));
        }
    }
    EXPECT_FALSE(flush(std::chrono::milliseconds(50)));
    std::uint64_t seen = 0;
    std::uint64_t last = 0;
    std::uint64_t logs = 0;
    EXPECT_TRUE(std::holds_alternative<HelloMessage>(read_message()));
    while (logs < kSteps / kLogEvery) {
        const UpMessage message = read_message();
        if (const auto* progress = std::get_if<ProgressEvent>(&message)) {
            EXPECT_GT(progress->step, last);
            last = progress->step;
            ++seen;
        } else {
            ++logs;
            EXPECT_EQ(std::get<LogEvent>(message).message, std::to_string(logs * kLogEvery));
        }
    }
    EXPECT_EQ(last, kSteps);  // the newest is never the one dropped
    EXPECT_LT(seen, kSteps);
    EXPECT_TRUE(flush(std::chrono::seconds(10)));
}

TEST_F(WorkerChannelTest, TakesMessagesFromManyThreads) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([this] {
            for (int i = 0; i < 500; ++i) {
                channel_->send(UpMessage(LogEvent{"info", "x"}));
            }
        });
    }
    EXPECT_TRUE(std::holds_alternative<HelloMessage>(read_message()));
    for (int i = 0; i < 2000; ++i) {
        EXPECT_TRUE(std::holds_alternative<LogEvent>(read_message()));
    }
    for (auto& thread : threads) {
        thread.join();
    }
}

TEST(WorkerChannelMake, RefusesWhatIsNoSocket) {
    asio::io_context context;
    const int file = ::open("/dev/null", O_RDONLY);
    const auto made = make_worker_channel(context.get_executor(), file);
    ASSERT_FALSE(made.has_value());
    EXPECT_THAT(made.error().message, HasSubstr("distilld starts this program"));
    ::close(file);
    EXPECT_FALSE(make_worker_channel(context.get_executor(), 987).has_value());
}

TEST(LineChannelTest, RefusesALineAboveTheLimit) {
    asio::io_context context;
    std::array<int, 2> pair{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair.data()), 0);
    LineChannel lines(context.get_executor(), pair[1], 100);
    ASSERT_EQ(::send(pair[0], std::string(99, 'a').append("\n").data(), 100, 0), 100);
    auto first = asio::co_spawn(context, lines.receive(), asio::use_future);
    context.run();
    EXPECT_EQ(first.get().value().value().size(), 99U);
    ASSERT_EQ(::send(pair[0], std::string(200, 'a').data(), 200, 0), 200);
    auto second = asio::co_spawn(context, lines.receive(), asio::use_future);
    context.restart();
    context.run();
    EXPECT_FALSE(second.get().has_value());
    ::close(pair[0]);
}

}  // namespace
}  // namespace distilld
