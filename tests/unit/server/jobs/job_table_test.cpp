#include "server/jobs/table/job_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/server/jobs/job_table_text.hpp"

namespace distilld {
namespace {

using namespace std::chrono_literals;
using test::out_of_memory;
using test::outcome;
using test::texts_of;
using Kind = WorkerOutcome::Kind;
using Time = JobTable::Time;
using ::testing::ElementsAre;

constexpr Time kNow{};
constexpr JobTableOptions kOneSlot{1, 2min};

void poll(JobTable& table) {
    static_cast<void>(table.poll(kNow));
}

TEST(JobTable, JudgesSubmissions) {
    const JobSubmission::Earlier same{true};
    const JobSubmission::Earlier other{false};
    struct Row {
        JobSubmission submission;
        JobVerdict verdict;
    };
    const std::vector<Row> rows{
        {{false, {}, test::writes("/free")}, JobVerdict::created},
        {{false, {}, test::writes("/taken")}, JobVerdict::output_in_use},
        {{false, {}, {}}, JobVerdict::invalid_spec},
        {{false, same, test::writes("/taken")}, JobVerdict::existing},
        {{false, same, test::writes("/free")}, JobVerdict::existing},
        {{false, other, test::writes("/free")}, JobVerdict::key_reused},
        {{false, other, {}}, JobVerdict::key_reused},
        {{true, {}, test::writes("/free")}, JobVerdict::valid},
        {{true, {}, test::writes("/taken")}, JobVerdict::output_in_use},
        {{true, {}, {}}, JobVerdict::invalid_spec},
        {{true, other, test::writes("/free")}, JobVerdict::valid},
    };
    JobTable table(kOneSlot);
    table.start();
    table.enqueue("j", test::writes("/taken"));
    for (std::size_t row = 0; row < rows.size(); ++row) {
        EXPECT_EQ(table.judge(rows[row].submission), rows[row].verdict) << row;
    }
    table.stop(kNow);
    for (std::size_t row = 0; row < rows.size(); ++row) {
        EXPECT_EQ(table.judge(rows[row].submission), JobVerdict::stopping) << row;
    }
}

TEST(JobTable, TakesNoMoreJobsThanMayWait) {
    JobTable table({.slots = 1, .max_queued = 2});
    table.start();
    const auto judged = [&table](bool dry_run) { return table.judge({dry_run, {}, test::writes("/new")}); };
    for (const auto* id : {"running", "a", "b"}) {
        EXPECT_EQ(judged(false), JobVerdict::created);
        table.enqueue(id, test::writes(std::string("/") + id));
        poll(table);
    }
    EXPECT_EQ(judged(false), JobVerdict::queue_full);
    EXPECT_EQ(judged(true), JobVerdict::valid) << "nothing would wait";
    EXPECT_EQ(table.judge({false, JobSubmission::Earlier{true}, test::writes("/a")}), JobVerdict::existing);
    table.on_ended("running", outcome(Kind::finished), kNow);
    poll(table);
    EXPECT_EQ(judged(false), JobVerdict::created);
}

TEST(JobTable, HalvesUntilTheLimitAndThenFails) {
    JobTable table(kOneSlot);
    table.start();
    table.enqueue("j", test::writes("/j"));
    MicroBatches split{64, 1};
    auto now = kNow;
    for (const auto* next : {"start j resume 32x2", "start j resume 16x4", "start j resume 8x8"}) {
        static_cast<void>(table.poll(now));
        table.on_ended("j", out_of_memory(split), now);
        now += 1s;
        auto actions = texts_of(table.poll(now));
        EXPECT_EQ(actions.back(), next);
        split = *halved(split);
    }
    table.on_ended("j", out_of_memory(split), now);
    EXPECT_THAT(texts_of(table.poll(now)), ElementsAre("store j failed out_of_memory"));
}

TEST(JobTable, RestoresWhatTheLastServiceLeft) {
    JobTable table({2, 2min});
    table.restore({"ran", test::writes("/ran"), true, false, false});
    table.restore({"waited", test::writes("/waited"), false, false, false});
    table.restore({"cancelled", test::writes("/cancelled"), true, true, false});
    table.restore({"stopped", test::writes("/stopped"), false, false, true});
    EXPECT_THAT(texts_of(table.poll(kNow)), ElementsAre("store ran queued service_restarted resume",
                                                        "store cancelled cancelled cancelled_by_user"));
    table.start();
    EXPECT_THAT(texts_of(table.poll(kNow)), ElementsAre("start ran resume", "start waited"));
    EXPECT_EQ(table.queue_position("stopped"), 1U);
    EXPECT_EQ(test::output_user(table, "/stopped"), "stopped");
    EXPECT_FALSE(test::output_user(table, "/cancelled"));
}

TEST(JobTable, AdoptsWorkersThatOutlivedTheService) {
    JobTable table({2, 2min});
    const auto adopted = [](const char* id, bool cancel_requested, bool paused, bool resumed) {
        RestoredJob job{id, test::writes(std::string("/") + id), true, cancel_requested, false, paused};
        job.adopted = true;
        job.resumed = resumed;
        return job;
    };
    table.restore(adopted("ran", false, false, false), kNow);
    table.restore(adopted("cancelled", true, false, false), kNow);
    table.restore(adopted("pausing", false, true, false), kNow);
    table.restore(adopted("resumed", false, false, true), kNow);
    table.restore({"waited", test::writes("/waited"), false, false, false});
    table.start();
    EXPECT_THAT(texts_of(table.poll(kNow)),
                ElementsAre("adopt ran", "adopt cancelled", "stop cancelled", "adopt pausing", "stop pausing",
                            "adopt resumed", "stop resumed"))
        << "more than the slots, and nothing else starts";
    EXPECT_EQ(test::output_user(table, "/ran"), "ran");
    table.on_ended("ran", outcome(Kind::finished), kNow);
    table.on_ended("cancelled", outcome(Kind::cancelled, "", true), kNow);
    table.on_ended("pausing", outcome(Kind::cancelled, "", true), kNow);
    EXPECT_THAT(texts_of(table.poll(kNow)),
                ElementsAre("store ran succeeded", "store cancelled cancelled cancelled_by_user",
                            "store pausing paused paused_by_user resume", "start waited"));
    table.on_ended("resumed", outcome(Kind::cancelled, "", true), kNow);
    EXPECT_THAT(texts_of(table.poll(kNow)), ElementsAre("store resumed queued resume", "start resumed resume"));
}

TEST(JobTable, LeavesWorkersAloneThatOutliveTheService) {
    JobTable table(kOneSlot);
    table.start();
    table.enqueue("runs", test::writes("/runs"));
    table.enqueue("waits", test::writes("/waits"));
    static_cast<void>(table.poll(kNow));
    table.stop(kNow, true);
    EXPECT_THAT(texts_of(table.poll(kNow)), ElementsAre("wake"));
    EXPECT_FALSE(table.next_wakeup().has_value());
    table.on_ended("runs", outcome(Kind::finished), kNow);
    EXPECT_THAT(texts_of(table.poll(kNow)), ElementsAre("store runs succeeded")) << "and nothing starts";
}

TEST(JobTable, F5AJobKeepsWhatItClaimsUntilItEnds) {
    JobTable table(kOneSlot);
    table.restore_ended("finished", test::writes("/alice/finished", "alice"));
    table.restore({"paused", test::writes("/alice/paused", "alice"), false, false, true, true});
    table.start();
    const auto judged = [&table](const char* folder, const char* owner) {
        return table.judge({false, {}, test::writes(folder, owner)});
    };
    EXPECT_EQ(judged("/alice/paused/checkpoints", "bob"), JobVerdict::output_in_use);
    EXPECT_EQ(judged("/alice/paused/checkpoints", "alice"), JobVerdict::output_in_use);
    EXPECT_EQ(judged("/alice/finished/checkpoints", "bob"), JobVerdict::not_yours);
    EXPECT_EQ(judged("/alice/finished", "alice"), JobVerdict::created);
    table.cancel("paused", kNow);
    EXPECT_EQ(judged("/alice/paused/checkpoints", "bob"), JobVerdict::not_yours) << "it has written there";
    EXPECT_EQ(judged("/alice/paused/checkpoints", "alice"), JobVerdict::created);
    table.forget("paused");
    EXPECT_EQ(judged("/alice/paused/checkpoints", "bob"), JobVerdict::created);
    table.enqueue("waits", test::writes("/alice/waits", "alice"));
    EXPECT_EQ(judged("/alice/waits", "bob"), JobVerdict::output_in_use);
    table.cancel("waits", kNow);
    EXPECT_EQ(judged("/alice/waits", "bob"), JobVerdict::created) << "it never began";
}

TEST(JobTable, F5WhereLinksLeadByNowIsClaimedWhenItIsFree) {
    JobTable table({2, 2min});
    table.start();
    table.enqueue("a", test::writes("/a"));
    table.enqueue("b", test::writes("/b"));
    const auto taken = table.claim_again("b", test::writes("/a/checkpoints").paths);
    ASSERT_TRUE(taken);
    EXPECT_EQ(taken->job, "a");
    EXPECT_EQ(test::output_user(table, "/b"), "b") << "nothing has changed";
    EXPECT_FALSE(table.claim_again("b", test::writes("/c").paths));
    EXPECT_EQ(test::output_user(table, "/c"), "b");
    EXPECT_FALSE(test::output_user(table, "/b"));
    EXPECT_FALSE(table.claim_again("nobody", test::writes("/a").paths));
}

TEST(JobTable, TheStopOfTheServiceHasAGraceOfItsOwn) {
    JobTable table({.slots = 2, .cancel_grace = 2min, .stop_grace = 4min});
    table.start();
    table.enqueue("cancelled", test::writes("/cancelled"));
    table.enqueue("running", test::writes("/running"));
    static_cast<void>(table.poll(kNow));
    table.cancel("cancelled", kNow);
    table.stop(kNow);
    static_cast<void>(table.poll(kNow));
    EXPECT_THAT(texts_of(table.poll(kNow + 2min)), ElementsAre("kill cancelled"));
    EXPECT_EQ(table.next_wakeup(), kNow + 4min);
    EXPECT_THAT(texts_of(table.poll(kNow + 4min)), ElementsAre("kill running"));
}

TEST(JobTable, WhatKeepsAWorkerFromBeingStartedFailsNoJobAndKeepsTheQueue) {
    JobTable table({2, 2min});
    table.start();
    for (const auto* id : {"a", "b", "c"}) {
        table.enqueue(id, test::writes(id));
    }
    EXPECT_THAT(texts_of(table.poll(kNow)), ElementsAre("start a", "start b"));
    table.on_ended("a", outcome(Kind::not_started, "worker_not_started"), kNow);
    table.on_ended("b", outcome(Kind::not_started, "worker_not_started"), kNow);
    EXPECT_THAT(texts_of(table.poll(kNow)),
                ElementsAre("store a queued worker_not_started waits", "store b queued worker_not_started waits"));
    EXPECT_EQ(table.queue_position("a"), 1U);
    EXPECT_EQ(table.queue_position("b"), 2U);
    EXPECT_EQ(table.queue_position("c"), 3U);
    auto now = kNow;
    // An hour without the program: nobody fails, and no more than one try in 30 s.
    int tries = 0;
    while (now < kNow + 1h) {
        now = *table.next_wakeup();
        for (const auto& action : table.poll(now)) {
            if (const auto* start = std::get_if<StartWorkerAction>(&action)) {
                tries += start->id == "a" ? 1 : 0;
                table.on_ended(start->id, outcome(Kind::not_started, "worker_not_started"), now);
            } else {
                EXPECT_EQ(std::get<StoreStateAction>(action).state, api::JobState::queued);
            }
        }
    }
    EXPECT_GT(tries, 110);
    EXPECT_LT(tries, 130);
    static_cast<void>(table.poll(now));
    now = *table.next_wakeup();
    EXPECT_THAT(texts_of(table.poll(now)), ElementsAre("start a", "start b"));
    table.on_ended("a", outcome(Kind::finished), now);
    EXPECT_THAT(texts_of(table.poll(now)), ElementsAre("store a succeeded", "start c"));
}

TEST(JobTable, AWorkerThatDiesIsRestartedUntilItMakesNoProgress) {
    JobTable table(kOneSlot);
    table.start();
    table.enqueue("j", test::writes("/j"));
    table.enqueue("k", test::writes("/k"));
    auto now = kNow;
    auto died = outcome(Kind::died);
    died.reason.message = "the worker was killed by signal 9 (Killed)";
    const auto run = [&](RunReach reach) {
        died.reach = reach;
        static_cast<void>(table.poll(now));
        table.on_ended("j", died, now);
        const auto actions = table.poll(now);
        now = table.next_wakeup().value_or(now);
        const auto& stored = std::get<StoreStateAction>(actions.at(0));
        return std::string(api::to_string(stored.state)) + ": " + stored.reason->message;
    };
    const std::string killed = "the worker was killed by signal 9 (Killed); ";
    EXPECT_EQ(run({0, 0}), "queued: " + killed + "restart 1 of 3 from the newest checkpoint in 1 s");
    EXPECT_EQ(run({0, 0}), "queued: " + killed + "restart 2 of 3 from the newest checkpoint in 2 s");
    for (std::uint64_t step = 1; step < 100; ++step) {  // as often as it takes while it comes on
        EXPECT_EQ(run({step - 1, step}), "queued: " + killed + "restart 1 of 3 from the newest checkpoint in 1 s");
        EXPECT_EQ(table.queue_position("j"), 1U);
    }
    EXPECT_EQ(run({98, 99}), "queued: " + killed + "restart 2 of 3 from the newest checkpoint in 2 s");
    EXPECT_EQ(run({98, 99}), "queued: " + killed + "restart 3 of 3 from the newest checkpoint in 4 s");
    EXPECT_EQ(run({98, 99}), "failed: " + killed + "it died 4 times in a row without progress");
    EXPECT_TRUE(table.is_running("k"));
}

TEST(JobTable, QueuesByPriorityAndThenAsTheyCame) {
    JobTable table(kOneSlot);
    table.restore({"old", test::writes("/old"), false, false, false, false, {0, 7}});
    table.restore({"urgent", test::writes("/urgent"), false, false, false, false, {5, 9}});
    table.restore({"ran", test::writes("/ran"), true, false, false, false, {0, 8}});
    table.enqueue("new", test::writes("/new"));
    table.enqueue("low", test::writes("/low"), {-1, 11});
    table.enqueue("revived", test::writes("/revived"), {0, 3}, true);
    EXPECT_THAT(table.queue(), ElementsAre("urgent", "revived", "old", "ran", "new", "low"));
    EXPECT_TRUE(table.set_priority("low", 6));
    EXPECT_TRUE(table.set_priority("urgent", -100));
    EXPECT_FALSE(table.set_priority("nobody", 1));
    EXPECT_THAT(table.queue(), ElementsAre("low", "revived", "old", "ran", "new", "urgent"));
    EXPECT_EQ(table.queue_position("urgent"), 6U);
    poll(table);
    table.start();
    EXPECT_THAT(texts_of(table.poll(kNow)), ElementsAre("start low"));
    // Of one that runs it is for later.
    EXPECT_TRUE(table.set_priority("low", -1));
    table.on_ended("low", outcome(Kind::died), kNow);
    EXPECT_THAT(table.queue(), ElementsAre("revived", "old", "ran", "new", "low", "urgent"));
    EXPECT_THAT(texts_of(table.poll(kNow)),
                ElementsAre("store low queued worker_restarting resume waits", "start revived resume"));
}

/// How many jobs are looked at while one comes, changes, ends and goes and so many others wait.
std::uint64_t visited_beside(int waiting) {
    JobTable table({.slots = 3, .cancel_grace = 2min});
    table.start();
    for (const auto* id : {"r1", "r2", "r3"}) {
        table.enqueue(id, test::writes(id));
    }
    poll(table);
    for (int index = 0; index < waiting; ++index) {
        const auto id = "w" + std::to_string(index);
        table.enqueue(id, test::writes(id));
    }
    poll(table);
    const auto before = table.visited();
    EXPECT_EQ(table.judge({false, {}, test::writes("new")}), JobVerdict::created);
    table.enqueue("new", test::writes("new"));
    EXPECT_EQ(table.judge({false, {}, test::writes("new")}), JobVerdict::output_in_use);
    poll(table);
    EXPECT_EQ(table.queue_position("new"), static_cast<std::uint64_t>(waiting) + 1);
    EXPECT_EQ(table.pause("new", kNow), JobVerdict::accepted);
    EXPECT_EQ(table.resume("new"), JobVerdict::accepted);
    EXPECT_TRUE(table.set_priority("new", 1));
    EXPECT_EQ(table.queue_position("new"), 1U);
    table.on_ended("r2", outcome(Kind::finished), kNow);
    EXPECT_THAT(texts_of(table.poll(kNow)), ::testing::Contains("start new"));
    EXPECT_FALSE(table.next_wakeup());
    EXPECT_TRUE(table.cancel("new", kNow));
    poll(table);
    EXPECT_EQ(table.next_wakeup(), kNow + 2min);
    EXPECT_TRUE(table.cancel("w0", kNow));
    poll(table);
    return table.visited() - before;
}

TEST(JobTable, LooksAtNoJobThatAnEventDoesNotConcern) {
    // Some halvings of a longer queue, each a few jobs more; not the queue.
    EXPECT_LT(visited_beside(8000), visited_beside(10) + 150);
}

TEST(JobTable, SaysWhoCameIntoTheQueueAndWhoLeft) {
    JobTable table(kOneSlot);
    table.start();
    JobQueue shown;
    const auto follow = [&] {
        for (const auto& change : table.take_queue_changes()) {
            shown.apply(change);
        }
        EXPECT_EQ(shown.ids(), table.queue());
        EXPECT_THAT(table.take_queue_changes(), ElementsAre());
    };
    for (const auto* id : {"a", "b", "c", "d"}) {
        table.enqueue(id, test::writes(id));
    }
    follow();
    poll(table);
    follow();
    table.set_priority("d", 4);
    table.pause("b", kNow);
    table.cancel("c", kNow);
    follow();
    table.resume("b");
    table.on_ended("a", outcome(Kind::died), kNow);
    follow();
    EXPECT_THAT(shown.ids(), ElementsAre("d", "a", "b"));
}

TEST(JobTable, APausedJobHoldsNoSlotAndComesBackToItsPlace) {
    JobTable table(kOneSlot);
    table.start();
    for (const auto* id : {"a", "b", "c"}) {
        table.enqueue(id, test::writes(id));
    }
    poll(table);
    EXPECT_EQ(table.pause("a", kNow), JobVerdict::accepted);
    EXPECT_EQ(table.pause("c", kNow), JobVerdict::accepted);
    EXPECT_EQ(table.pause("nobody", kNow), JobVerdict::not_found);
    poll(table);
    EXPECT_EQ(table.running(), 1U);
    table.on_ended("a", outcome(Kind::cancelled, "", true), kNow);
    EXPECT_THAT(texts_of(table.poll(kNow)), ElementsAre("store a paused paused_by_user resume", "start b"));
    EXPECT_EQ(test::output_user(table, "a"), "a");
    EXPECT_FALSE(table.queue_position("a"));
    EXPECT_EQ(table.resume("c"), JobVerdict::accepted);
    EXPECT_EQ(table.resume("a"), JobVerdict::accepted);
    EXPECT_EQ(table.resume("a"), JobVerdict::accepted);
    EXPECT_THAT(table.queue(), ElementsAre("a", "c"));
}

TEST(JobTable, SaysWhyAVerbIsOfNoUse) {
    JobTable table(kOneSlot);
    table.start();
    table.enqueue("runs", test::writes("/runs"));
    table.enqueue("waits", test::writes("/waits"));
    poll(table);
    EXPECT_EQ(table.tell("runs", CheckpointCommand{}, "checkpoint requested"), JobVerdict::accepted);
    EXPECT_EQ(table.tell("waits", CheckpointCommand{}, "checkpoint requested"), JobVerdict::not_running);
    EXPECT_EQ(table.tell("nobody", CheckpointCommand{}, "checkpoint requested"), JobVerdict::not_found);
    EXPECT_EQ(table.resume("nobody"), JobVerdict::not_found);
    table.pause("waits", kNow);
    EXPECT_EQ(table.tell("waits", CheckpointCommand{}, "checkpoint requested"), JobVerdict::not_running);
    table.cancel("runs", kNow);
    EXPECT_EQ(table.pause("runs", kNow), JobVerdict::cancelling);
    EXPECT_EQ(table.resume("runs"), JobVerdict::cancelling);
    EXPECT_EQ(table.tell("runs", CheckpointCommand{}, "checkpoint requested"), JobVerdict::cancelling);
}

TEST(JobTable, AJobThatDiedOftenBeginsAnewWhenItIsResumed) {
    JobTable table(kOneSlot);
    table.start();
    table.enqueue("j", test::writes("/j"));
    poll(table);
    for (const auto after : {0s, 1s, 3s}) {
        table.on_ended("j", outcome(Kind::died), kNow + after);
        static_cast<void>(table.poll(kNow + after));
        table.pause("j", kNow + after);
        table.resume("j");
        EXPECT_THAT(texts_of(table.poll(kNow + after)).back(), "start j resume") << "at once";
    }
    table.on_ended("j", outcome(Kind::died), kNow + 7s);
    EXPECT_THAT(texts_of(table.poll(kNow + 7s)), ElementsAre("store j queued worker_restarting resume waits"));
}

TEST(JobTable, SaysWhenToCallAgain) {
    JobTable table(kOneSlot);
    table.start();
    EXPECT_FALSE(table.next_wakeup());
    table.enqueue("j", test::writes("/j"));
    EXPECT_EQ(table.next_wakeup(), Time{});
    poll(table);
    EXPECT_FALSE(table.next_wakeup());
    table.on_ended("j", outcome(Kind::not_started), kNow);
    EXPECT_EQ(table.next_wakeup(), kNow + 1s);
    static_cast<void>(table.poll(kNow + 1s));
    table.cancel("j", kNow + 6s);
    EXPECT_EQ(table.next_wakeup(), kNow + 6s + 2min);
    static_cast<void>(table.poll(kNow + 6s + 2min));
    EXPECT_FALSE(table.next_wakeup());
}

}  // namespace
}  // namespace distilld
