#include "server/jobs/routes/attempt_routes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/http/http_server.hpp"
#include "server/supervisor/relay.hpp"
#include "server/supervisor/remote_worker.hpp"
#include "tests/unit/server/jobs/fake_worker.hpp"

namespace distilld {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Keeps everything in memory.
class MemoryRecord final : public AttemptRecord {
  public:
    Stored stored() const override { return now; }
    bool set_token(std::string token_hash) override {
        now.token_hash = std::move(token_hash);
        return true;
    }
    bool set_place(std::string place) override {
        now.place = std::move(place);
        return true;
    }
    void begin_message(std::uint64_t number) override { now.received = number; }
    void end_message() override {}
    void save() override {}
    std::uint64_t saved() const override { return now.received; }

    Stored now;
};

class TokenPlace final : public Place {
  public:
    TokenPlace(const boost::asio::any_io_executor& executor, std::string& token) : never_(executor), token_(token) {}
    boost::asio::awaitable<Result<std::string>> begin(RelayOrder order) override {
        token_ = order.token;
        co_return "here";
    }
    boost::asio::awaitable<PlaceEnd> ended() override {
        co_await never_.wait();
        co_return "";
    }
    void cancel() override {}

  private:
    Condition never_;
    std::string& token_;
};

/// A service and a relay in one thread, with a connection of the loopback interface between them.
class ChannelTest : public ::testing::Test {
  protected:
    ChannelTest() {
        http::ServerOptions options;
        server = http::make_server(context.get_executor(), options, {make_attempt_route(attempts)}).value();
        boost::asio::co_spawn(context, server->run(), [this](const std::exception_ptr&) { server_ended = true; });
    }
    ~ChannelTest() override {
        worker.reset();
        server->stop(std::chrono::seconds(0));
        wait_for([this] { return server_ended; });
    }

    void wait_for(const std::function<bool()>& done) {
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        while (!done()) {
            ASSERT_LT(std::chrono::steady_clock::now(), until);
            context.restart();
            context.run_one_for(std::chrono::seconds(1));
        }
    }
    void start_worker() {
        RemoteWorkerOptions options;
        options.attempt = {"job_1", 1};
        options.record = record;
        options.place = std::make_unique<TokenPlace>(context.get_executor(), token);
        worker = make_remote_worker(context.get_executor(), attempts, std::move(options));
        WorkerStart start;
        start.spec_json = R"({"name":"n"})";
        auto running = worker->run(std::move(start), [this](const WorkerEvent& event) { events.push_back(event); });
        boost::asio::co_spawn(context, std::move(running),
                              [this](const std::exception_ptr&, Result<WorkerExit> how) { exit = std::move(how); });
        wait_for([this] { return !token.empty(); });
    }
    void start_relay(const std::string& with, std::chrono::seconds patience = std::chrono::seconds(600)) {
        RelayOptions options;
        options.service = parse_endpoint_url("http://" + server->address(), kAttemptChannelPath).value();
        options.token = with;
        options.user_agent = "test";
        options.say = [this](const std::string& line) { said.push_back(line); };
        options.min_pause = std::chrono::milliseconds(1);
        options.max_pause = std::chrono::milliseconds(20);
        options.patience = patience;
        options.make_worker = [this](const JobSpec*, WorkerOutput::LineSink sink) {
            output = std::move(sink);
            return Result<std::unique_ptr<WorkerProcess>>(fleet.factory()(context.get_executor(), Slot{}));
        };
        relay = std::make_unique<Relay>(context.get_executor(), std::move(options));
        boost::asio::co_spawn(context, relay->run(), [this](const std::exception_ptr&, const Result<void>& outcome) {
            relay_ended = true;
            relay_outcome = outcome;
        });
    }
    /// The relay's worker has begun.
    test::Control begun() {
        wait_for([this] { return fleet.count() > 0; });
        return fleet.next();
    }

    boost::asio::io_context context{1};
    RemoteAttempts attempts;
    std::shared_ptr<MemoryRecord> record = std::make_shared<MemoryRecord>();
    std::unique_ptr<http::Server> server;
    bool server_ended = false;
    test::Fleet fleet;
    std::string token;
    std::unique_ptr<WorkerProcess> worker;
    std::vector<WorkerEvent> events;
    std::optional<Result<WorkerExit>> exit;
    std::unique_ptr<Relay> relay;
    WorkerOutput::LineSink output;
    std::vector<std::string> said;
    bool relay_ended = false;
    Result<void> relay_outcome;
};

TEST_F(ChannelTest, ARelayRunsTheWorkerOfAnAttempt) {
    start_worker();
    start_relay(token);
    const auto there = begun();
    EXPECT_EQ(there->start.spec_json, R"({"name":"n"})");
    worker->send(CheckpointCommand{});
    wait_for([&] { return there->told.size() == 1; });
    EXPECT_THAT(there->told, ElementsAre("checkpoint"));
    output("a word");
    there->emit(StartedEvent{}, there);
    there->emit(FinishedEvent{}, there);
    there->end(there, WorkerExit{0, "a tail"});
    wait_for([this] { return exit.has_value(); });
    EXPECT_EQ(events.size(), 2U);
    EXPECT_EQ(exit->value().stderr_tail, "a tail");
    EXPECT_FALSE(relay_ended) << "before the service has stored the end";
    worker.reset();
    wait_for([this] { return relay_ended; });
    EXPECT_TRUE(relay_outcome.has_value());
}

TEST_F(ChannelTest, TheWorkerGoesOnWhileConnectionsBreak) {
    start_worker();
    start_relay(token);
    const auto there = begun();
    const auto port = attempts.find(record->now.token_hash);
    ASSERT_NE(port, nullptr);
    for (std::uint64_t step = 1; step <= 20; ++step) {
        port->connect();  // ends the relay's connection
        CheckpointEvent event;
        event.step = step;
        there->emit(event, there);
        if (step % 3 == 0) {
            wait_for([&] { return events.size() >= step; });
        }
    }
    wait_for([&] { return events.size() >= 20; });
    std::vector<std::uint64_t> steps;
    for (const auto& event : events) {
        steps.push_back(std::get<CheckpointEvent>(event).step);
    }
    std::vector<std::uint64_t> expected;
    for (std::uint64_t step = 1; step <= 20; ++step) {
        expected.push_back(step);
    }
    EXPECT_EQ(steps, expected);
    EXPECT_EQ(fleet.count(), 1U);
    there->end(there);
    wait_for([this] { return exit.has_value(); });
    worker.reset();
    wait_for([this] { return relay_ended; });
}

TEST_F(ChannelTest, AnUnknownAttemptIsOverOnceAllAreKnown) {
    start_relay("dt_unknown");
    wait_for([this] { return !said.empty(); });
    EXPECT_THAT(said, ElementsAre(HasSubstr("HTTP 503")));
    EXPECT_FALSE(relay_ended);
    attempts.complete();
    wait_for([this] { return relay_ended; });
    EXPECT_TRUE(relay_outcome.has_value());
    EXPECT_THAT(said, Contains(HasSubstr("does not know this attempt")));
    EXPECT_EQ(fleet.count(), 0U);
}

TEST_F(ChannelTest, SaysWhatDidNotReachTheService) {
    start_worker();
    start_relay(token, std::chrono::seconds(1));
    const auto there = begun();
    server->stop(std::chrono::seconds(0));
    wait_for([this] { return server_ended; });
    there->emit(CheckpointEvent{}, there);
    there->emit(FinishedEvent{}, there);
    there->end(there);
    wait_for([this] { return relay_ended; });
    ASSERT_FALSE(relay_outcome.has_value());
    EXPECT_THAT(relay_outcome.error().message, HasSubstr("3 messages of the worker did not reach"));
}

}  // namespace
}  // namespace distilld
