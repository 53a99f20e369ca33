#include "server/supervisor/remote_worker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "api/job_spec.hpp"
#include "pipeline/async/condition.hpp"
#include "server/protocol/numbered_link.hpp"
#include "server/protocol/relay_messages.hpp"
#include "tests/unit/server/supervisor/fake_worker_run.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Says what was done to it, in order.
class NotedRecord final : public AttemptRecord {
  public:
    explicit NotedRecord(std::vector<std::string>& notes) : notes_(notes) {}

    Stored stored() const override { return now; }
    bool set_token(std::string token_hash) override {
        now.token_hash = std::move(token_hash);
        return writable;
    }
    bool set_place(std::string place) override {
        now.place = std::move(place);
        return writable;
    }
    void begin_message(std::uint64_t number) override {
        now.received = number;
        notes_.push_back("begin " + std::to_string(number));
    }
    void end_message() override {
        notes_.emplace_back("end");
        if (writable) {
            now_saved = now.received;
        }
    }
    void save() override {
        if (writable) {
            now_saved = now.received;
        }
    }
    std::uint64_t saved() const override { return now_saved; }

    Stored now;
    std::uint64_t now_saved = 0;
    bool writable = true;

  private:
    std::vector<std::string>& notes_;
};

/// What a test does with a place, which the worker owns.
struct PlaceControl {
    explicit PlaceControl(const asio::any_io_executor& executor) : changed(executor) {}
    void go(std::string why, std::string of_kind = kWorkerKilled) {
        gone = std::move(why);
        kind = std::move(of_kind);
        changed.notify();
    }

    Condition changed;
    PlaceWait waits;
    std::string kind;
    std::string token;
    std::string gone;
    std::string failure;
    int begun = 0;
    int cancels = 0;
};

class NotedPlace final : public Place {
  public:
    explicit NotedPlace(std::shared_ptr<PlaceControl> control) : control_(std::move(control)) {}
    asio::awaitable<Result<std::string>> begin(RelayOrder order) override {
        ++control_->begun;
        control_->token = order.token;
        if (!control_->failure.empty()) {
            co_return io_error(control_->failure);
        }
        co_return "place-7";
    }
    asio::awaitable<PlaceEnd> ended() override {
        while (control_->gone.empty()) {
            co_await control_->changed.wait();
        }
        co_return PlaceEnd{control_->kind, control_->gone};
    }
    void tell_of_waits(PlaceWait waits) override { control_->waits = std::move(waits); }
    void cancel() override { ++control_->cancels; }

  private:
    std::shared_ptr<PlaceControl> control_;
};

class RemoteWorkerTest : public ::testing::Test {
  protected:
    void make(bool adopted = false) {
        RemoteWorkerOptions options;
        options.attempt = {"job_1", 2};
        options.record = record;
        options.place = std::make_unique<NotedPlace>(place);
        options.adopted = adopted;
        options.output = [this](const std::string& line) { notes.push_back("said " + line); };
        options.gone_grace = std::chrono::seconds(0);
        options.kill_grace = kill_grace;
        worker = make_remote_worker(context.get_executor(), attempts, std::move(options));
    }
    void run() {
        WorkerStart start;
        start.spec_json = R"({"name":"n"})";
        start.spec = spec;
        start.job_id = "job_1";
        start.attempt = 2;
        auto running = worker->run(std::move(start), [this](const WorkerEvent& event) {
            notes.emplace_back("event " + std::string(std::visit(
                                              [](const auto& one) {
                                                  return row_of<std::remove_cvref_t<decltype(one)>>(kWorkerEvents).name;
                                              },
                                              event)));
            outcome.events.push_back(event);
        });
        asio::co_spawn(context, std::move(running),
                       [this](const std::exception_ptr&, Result<WorkerExit> exit) { outcome.exit = std::move(exit); });
        turn();
    }
    /// All that can be done is done.
    void turn() {
        context.restart();
        context.poll();
    }
    void connect() {
        port = attempts.find(record->now.token_hash);
        ASSERT_NE(port, nullptr);
        connection = port->connect();
        relay.connect();
        asio::co_spawn(context, hear(connection), [](const std::exception_ptr&) {});
        exchange();
    }
    asio::awaitable<void> hear(std::uint64_t over) {
        for (;;) {
            auto message = co_await port->next(over);
            if (message.closed) {
                closings.push_back(message.closed->code);
                co_return;
            }
            const auto taken = relay.take(message.text);
            EXPECT_TRUE(taken.has_value()) << taken.error().message;
            if (taken && taken->line) {
                orders.push_back(open_line(*taken->line).value().type);
                if (orders.back() == "start") {
                    got = std::get<WorkerStart>(decode_message<kToRelay>(*taken->line).value());
                }
                relay.confirm(relay.received());
            }
        }
    }
    void exchange() {
        bool moved = true;
        while (moved) {
            moved = false;
            turn();
            while (auto frame = relay.next()) {
                moved = true;
                EXPECT_EQ(port->take(connection, *std::move(frame)), std::nullopt);
            }
        }
    }
    void say(const FromRelay& message) {
        relay.push(encode_message<kFromRelay>(message));
        exchange();
    }

    void end_unasked(const char* kind_of_place) {
        kill_grace = std::chrono::seconds(60);
        make();
        run();
        connect();
        say(CancelledEvent{});
        say(EndMessage{});
        EXPECT_THAT(closings, ElementsAre(kAttemptOver)) << "the relay need not wait";
        EXPECT_THAT(outcome.events, IsEmpty()) << "nobody knows yet who wanted it";
        place->go("somebody did it", kind_of_place);
        turn();
    }

    asio::io_context context{1};
    std::vector<std::string> notes;
    std::shared_ptr<NotedRecord> record = std::make_shared<NotedRecord>(notes);
    std::chrono::seconds kill_grace{0};
    std::shared_ptr<PlaceControl> place = std::make_shared<PlaceControl>(context.get_executor());
    RemoteAttempts attempts;
    std::unique_ptr<WorkerProcess> worker;
    std::shared_ptr<AttemptPort> port;
    std::uint64_t connection = 0;
    NumberedLink relay{{}, 0, 0};
    std::vector<std::string> orders;  ///< that the relay got
    std::shared_ptr<const JobSpec> spec;
    WorkerStart got;                      ///< of the relay
    std::vector<std::uint16_t> closings;  ///< of connections
    test::Outcome outcome;
};

TEST_F(RemoteWorkerTest, PassesOnWhatTheRelaySays) {
    make();
    run();
    EXPECT_EQ(record->now.place, "place-7");
    EXPECT_EQ(record->now.token_hash.size(), 64U);
    EXPECT_THAT(place->token, testing::StartsWith("dt_"));
    connect();
    EXPECT_THAT(orders, ElementsAre("start"));
    say(StartedEvent{});
    say(OutputMessage{"a word"});
    worker->send(CheckpointCommand{});
    exchange();
    EXPECT_THAT(orders, ElementsAre("start", "checkpoint"));
    say(FinishedEvent{});
    EXPECT_THAT(notes, ElementsAre("begin 1", "event started", "end", "said a word", "begin 2", "end"))
        << "the last event waits for the end of the worker";
    say(EndMessage{3, "a tail", ""});
    EXPECT_THAT(std::vector(notes.begin() + 6, notes.end()), ElementsAre("begin 4", "event finished"))
        << "and is stored with what becomes of the job";
    EXPECT_EQ(outcome.exit_code(), 3);
    EXPECT_EQ(outcome.exit->value().stderr_tail, "a tail");
    EXPECT_THAT(closings, IsEmpty()) << "before that is stored";
    const auto hash = record->now.token_hash;
    worker.reset();
    turn();
    EXPECT_THAT(closings, ElementsAre(kAttemptOver));
    EXPECT_EQ(attempts.find(hash), nullptr);
}

TEST_F(RemoteWorkerTest, SaysWhyThePlaceIsNotThereUntilItsRelayIs) {
    make();
    run();
    place->waits("");
    EXPECT_THAT(outcome.events, IsEmpty()) << "it did not wait";
    place->waits("in the queue: Resources");
    place->waits("in the queue: Priority");
    connect();
    place->waits("in the queue: late news");
    place->waits("");
    const auto told = outcome.of<WaitingEvent>();
    ASSERT_EQ(told.size(), 3U);
    EXPECT_EQ(told[0].code, "cluster_queue");
    EXPECT_EQ(told[1].message, "in the queue: Priority");
    EXPECT_EQ(told[1].since, told[0].since);
    EXPECT_GT(told[0].since, 0);
    EXPECT_EQ(told[2].code, "") << "it is over";
}

TEST_F(RemoteWorkerTest, GivesTheKeysOfTheJob) {
    ::setenv("DISTILLD_KEY_A", "secret", 1);
    ::setenv("DISTILLD_KEY_B", "secret too", 1);
    auto keyed = std::make_shared<JobSpec>();
    keyed->teachers[""].api_key_env = "DISTILLD_KEY_A";
    spec = keyed;
    make(/*adopted=*/true);  // the service may have been killed before it sent them
    run();
    ::unsetenv("DISTILLD_KEY_A");
    ::unsetenv("DISTILLD_KEY_B");
    connect();
    EXPECT_THAT(got.keys, ElementsAre(std::pair("DISTILLD_KEY_A", "secret")));
}

TEST_F(RemoteWorkerTest, AcknowledgesWhatIsStored) {
    make();
    run();
    connect();
    record->writable = false;
    say(StartedEvent{});
    EXPECT_EQ(relay.undelivered(), 1U);
    record->writable = true;
    say(CheckpointEvent{});
    EXPECT_TRUE(relay.delivered());
    say(FinishedEvent{});
    EXPECT_EQ(relay.undelivered(), 1U) << "its meaning is not stored";
}

TEST_F(RemoteWorkerTest, ANewConnectionReplacesTheOneBefore) {
    make();
    run();
    connect();
    const auto first = connection;
    connect();
    EXPECT_THAT(closings, ElementsAre(kConnectionReplaced));
    EXPECT_EQ(port->take(first, "{}").value().code, kConnectionReplaced);
    port->disconnect(first);
    say(StartedEvent{});
    EXPECT_EQ(outcome.events.size(), 1U);
    EXPECT_THAT(orders, ElementsAre("start")) << "once";
}

TEST_F(RemoteWorkerTest, NonsenseEndsTheConnectionButNotTheWorker) {
    make();
    run();
    connect();
    const auto refusal = port->take(connection, "garbage");
    ASSERT_TRUE(refusal.has_value());
    EXPECT_EQ(refusal->code, kLinkBroken);
    EXPECT_THAT(refusal->reason, HasSubstr("garbage"));
    connect();
    say(StartedEvent{});
    EXPECT_FALSE(outcome.exit.has_value());
    EXPECT_EQ(outcome.events.size(), 1U);
}

TEST_F(RemoteWorkerTest, AnUnknownMessageOfItsRelayEndsTheWorker) {
    make();
    run();
    connect();
    relay.push(R"({"type":"nonsense"})");
    exchange();
    EXPECT_EQ(place->cancels, 1);
    EXPECT_THAT(orders, ElementsAre("start", "kill"));
    EXPECT_EQ(outcome.failure().kind, kWorkerKilled);
    EXPECT_THAT(outcome.failure().message, HasSubstr("nonsense"));
}

TEST_F(RemoteWorkerTest, APlaceThatIsGoneWithoutAWordIsADeath) {
    make();
    run();
    connect();
    port->disconnect(connection);
    place->go("the launcher lost it");
    turn();
    EXPECT_EQ(outcome.failure().kind, kWorkerKilled);
    EXPECT_EQ(outcome.failure().message, "the launcher lost it");
}

TEST_F(RemoteWorkerTest, AWorkerThatEndsUnaskedIsCancelledIfItsPlaceWas) {
    end_unasked(kWorkerCancelled);
    EXPECT_EQ(outcome.failure().kind, kWorkerCancelled);
    EXPECT_EQ(outcome.failure().message, "somebody did it");
}

TEST_F(RemoteWorkerTest, AWorkerThatEndsUnaskedIsToComeBackIfItsPlaceIsOnlyGone) {
    end_unasked(kWorkerKilled);
    ASSERT_EQ(outcome.events.size(), 1U);
    EXPECT_TRUE(std::holds_alternative<CancelledEvent>(outcome.events.front()));
}

TEST_F(RemoteWorkerTest, APlaceThatIsCancelledBeforeItsRelayCameCancelsTheJob) {
    make();
    run();
    place->go("Slurm job 7 was cancelled", kWorkerCancelled);
    turn();
    EXPECT_EQ(outcome.failure().kind, kWorkerCancelled);
}

TEST_F(RemoteWorkerTest, APlaceThatIsGoneBeforeItsRelayCameIsNotTheJobsFault) {
    make();
    run();
    place->go("no such partition");
    turn();
    EXPECT_EQ(outcome.failure().kind, kWorkerNotStarted);
}

TEST_F(RemoteWorkerTest, WhatCannotBeginIsAnError) {
    make();
    place->failure = "sbatch: no";
    run();
    ASSERT_TRUE(outcome.exit.has_value());
    EXPECT_EQ(outcome.exit->error().message, "sbatch: no");
    EXPECT_THAT(outcome.events, IsEmpty());
}

TEST_F(RemoteWorkerTest, NothingIsStartedThatIsNotStored) {
    make();
    record->writable = false;
    run();
    ASSERT_TRUE(outcome.exit.has_value());
    EXPECT_THAT(outcome.exit->error().message, HasSubstr("cannot be written"));
    EXPECT_EQ(place->begun, 0);
}

TEST_F(RemoteWorkerTest, KillDoesNotWaitForTheRelay) {
    make();
    run();
    worker->kill();
    turn();
    EXPECT_EQ(place->cancels, 1);
    EXPECT_EQ(outcome.failure().kind, "internal");
}

TEST_F(RemoteWorkerTest, KillBeforeItStarted) {
    make();
    worker->kill();
    run();
    EXPECT_EQ(place->begun, 0);
    EXPECT_EQ(outcome.failure().kind, "internal");
}

TEST_F(RemoteWorkerTest, AWorkerThatCouldNotBeStartedThere) {
    make();
    run();
    connect();
    say(EndMessage{0, "", "there is no distilld-worker"});
    ASSERT_TRUE(outcome.exit.has_value());
    EXPECT_EQ(outcome.exit->error().message, "there is no distilld-worker");
}

/// The service has started again; the relay still runs, and has one event that was not stored.
TEST_F(RemoteWorkerTest, AnAdoptedWorkerGoesOn) {
    make();
    run();
    connect();
    say(StartedEvent{});
    record->writable = false;
    say(CheckpointEvent{});
    record->writable = true;
    record->now.received = record->now_saved;
    worker.reset();  // run() has not returned, as when the service ends
    turn();
    EXPECT_THAT(closings, IsEmpty());
    notes.clear();
    outcome = {};
    make(true);
    worker->send(CancelCommand{});
    run();
    EXPECT_EQ(place->begun, 1);
    connect();
    EXPECT_THAT(orders, ElementsAre("start", "cancel", "start")) << "the relay ignores a second start";
    EXPECT_THAT(notes, ElementsAre("begin 2", "event checkpoint", "end"));
    say(CancelledEvent{});
    say(EndMessage{});
    EXPECT_EQ(outcome.exit_code(), 0);
}

}  // namespace
}  // namespace distilld
