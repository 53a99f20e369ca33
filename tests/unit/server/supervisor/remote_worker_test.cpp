#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/server/supervisor/remote_worker_fixture.hpp"

namespace distilld {
namespace {

using test::RemoteWorkerTest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

TEST_F(RemoteWorkerTest, CountsConnectionsAndMessages) {
    const auto counts = [this] {
        const LinkCounts now = attempts.counts();
        return std::vector<std::uint64_t>{now.connections, now.reconnects, now.connected, now.unacknowledged};
    };
    make();
    run();
    EXPECT_THAT(counts(), ElementsAre(0, 0, 0, 1)) << "the order";
    worker->send(CheckpointCommand{});
    EXPECT_THAT(counts(), ElementsAre(0, 0, 0, 2));
    connect();
    EXPECT_THAT(counts(), ElementsAre(1, 0, 1, 0));
    port->disconnect(connection);
    port->disconnect(connection);
    worker->send(CheckpointCommand{});
    EXPECT_THAT(counts(), ElementsAre(1, 0, 0, 1));
    connect();
    EXPECT_THAT(counts(), ElementsAre(2, 1, 1, 0));
    worker->send(CheckpointCommand{});
    port->disconnect(connection);
    EXPECT_THAT(counts(), ElementsAre(2, 1, 0, 1));
    place->go("it is gone");
    turn();
    worker.reset();
    EXPECT_THAT(counts(), ElementsAre(2, 1, 0, 0)) << "an attempt that is over waits for nothing";
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
