#include "server/jobs/job_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/server/jobs/job_table_text.hpp"

namespace distilld {
namespace {

using namespace std::chrono_literals;
using test::outcome;
using test::texts_of;
using Kind = WorkerOutcome::Kind;
using Time = JobTable::Time;
using ::testing::ElementsAre;

constexpr Time kNow{};
constexpr JobTableOptions kOneSlot{1, 2min};

WorkerOutcome out_of_memory(MicroBatches cut) {
    auto result = outcome(Kind::out_of_memory, "out_of_memory");
    result.cut = cut;
    return result;
}

/// A step of a table with the job "j" in it (and "other", which takes the slot where "j" has to wait).
using Step = std::function<void(JobTable&)>;

void poll(JobTable& table) {
    static_cast<void>(table.poll(kNow));
}

const std::map<std::string, Step> kStates{
    {"unknown", [](JobTable& table) { table.start(); }},
    {"restored", [](JobTable& table) { table.restore({"j", "/j", false, false, false}); }},
    {"waiting",
     [](JobTable& table) {
         table.start();
         table.enqueue("other", "/other");
         table.enqueue("j", "/j");
     }},
    {"not started",
     [](JobTable& table) {
         table.start();
         table.enqueue("j", "/j");
         poll(table);
         table.on_ended("j", outcome(Kind::not_started, "worker_not_started"), kNow);
     }},
    {"died",
     [](JobTable& table) {
         kStates.at("running")(table);
         poll(table);
         table.on_ended("j", outcome(Kind::died), kNow);
     }},
    {"out of memory",
     [](JobTable& table) {
         kStates.at("running")(table);
         poll(table);
         table.on_ended("j", out_of_memory({8, 1}), kNow);
     }},
    {"died for the last time",
     [](JobTable& table) {
         kStates.at("running")(table);
         for (const auto after : {0s, 1s, 3s, 7s}) {
             static_cast<void>(table.poll(kNow + after));
             table.on_ended("j", outcome(Kind::died), kNow + after);
         }
     }},
    {"running",
     [](JobTable& table) {
         table.start();
         table.enqueue("j", "/j");
     }},
    {"cancelling",
     [](JobTable& table) {
         kStates.at("running")(table);
         poll(table);
         table.cancel("j", kNow);
     }},
    {"cancelling by force",
     [](JobTable& table) {
         kStates.at("cancelling")(table);
         static_cast<void>(table.poll(kNow + 2min));
     }},
    {"requeuing",
     [](JobTable& table) {
         kStates.at("running")(table);
         poll(table);
         table.stop(kNow);
     }},
    {"requeuing by force",
     [](JobTable& table) {
         kStates.at("requeuing")(table);
         static_cast<void>(table.poll(kNow + 2min));
     }},
    {"cancelling, service stops",
     [](JobTable& table) {
         kStates.at("requeuing")(table);
         poll(table);
         table.cancel("j", kNow);
     }},
    {"waiting, service stops",
     [](JobTable& table) {
         kStates.at("waiting")(table);
         poll(table);
         table.stop(kNow);
     }},
};

const std::map<std::string, Step> kEvents{
    {"restore", [](JobTable& table) { table.restore({"j", "/elsewhere", true, false, true}); }},
    {"start", [](JobTable& table) { table.start(); }},
    {"stop", [](JobTable& table) { table.stop(kNow); }},
    {"enqueue", [](JobTable& table) { table.enqueue("j", "/j"); }},
    {"cancel", [](JobTable& table) { table.cancel("j", kNow); }},
    {"finished", [](JobTable& table) { table.on_ended("j", outcome(Kind::finished), kNow); }},
    {"cancelled", [](JobTable& table) { table.on_ended("j", outcome(Kind::cancelled, "", true), kNow); }},
    {"failed", [](JobTable& table) { table.on_ended("j", outcome(Kind::failed, "teacher"), kNow); }},
    {"failed inside", [](JobTable& table) { table.on_ended("j", outcome(Kind::failed, "internal"), kNow); }},
    {"died", [](JobTable& table) { table.on_ended("j", outcome(Kind::died), kNow); }},
    {"out of memory", [](JobTable& table) { table.on_ended("j", out_of_memory({8, 2}), kNow); }},
    {"out of memory, odd", [](JobTable& table) { table.on_ended("j", out_of_memory({3, 2}), kNow); }},
    {"out of memory at its begin", [](JobTable& table) { table.on_ended("j", out_of_memory({}), kNow); }},
    {"not started",
     [](JobTable& table) { table.on_ended("j", outcome(Kind::not_started, "worker_not_started"), kNow); }},
    {"short time", [](JobTable&) {}},
    {"long time", [](JobTable&) {}},
};

/// Actions, then what is wanted of the job. A pair that is not here changes nothing and gives no action.
using Expected = std::map<std::string, std::string>;
const std::map<std::string, Expected> kTable{
    {"unknown", {{"enqueue", "start j -> run"}, {"stop", "wake -> gone"}}},
    {"restored",
     {{"start", "start j -> run"},
      {"stop", "wake -> wait"},
      {"cancel", "store j cancelled cancelled_by_user -> gone"}}},
    {"waiting", {{"stop", "wake -> wait"}, {"cancel", "store j cancelled cancelled_by_user -> gone"}}},
    {"not started",
     {{"stop", "wake -> wait"},
      {"cancel", "store j cancelled cancelled_by_user -> gone"},
      {"long time", "start j -> run"}}},
    {"died",
     {{"stop", "wake -> wait"},
      {"cancel", "store j cancelled cancelled_by_user -> gone"},
      {"long time", "start j resume -> run"}}},
    {"out of memory",
     {{"stop", "wake -> wait"},
      {"cancel", "store j cancelled cancelled_by_user -> gone"},
      {"long time", "start j resume 4x2 -> run"}}},
    {"died for the last time", {{"enqueue", "start j -> run"}, {"stop", "wake -> gone"}}},
    {"running",
     {{"stop", "stop j, wake -> requeue"},
      {"cancel", "cancel-request j, stop j -> cancel"},
      {"finished", "store j succeeded -> gone"},
      {"cancelled", "store j queued worker_restarting resume waits -> wait"},
      {"failed", "store j failed teacher -> gone"},
      {"failed inside", "store j failed internal -> gone"},
      {"died", "store j queued worker_restarting resume waits -> wait"},
      {"out of memory", "store j queued out_of_memory_restarted resume waits -> wait"},
      {"out of memory, odd", "store j failed out_of_memory -> gone"},
      {"out of memory at its begin", "store j queued worker_restarting resume waits -> wait"},
      {"not started", "store j queued worker_not_started waits -> wait"}}},
    {"cancelling",
     {{"stop", "wake -> cancel"},
      {"finished", "store j succeeded -> gone"},
      {"cancelled", "store j cancelled cancelled_by_user -> gone"},
      {"failed", "store j failed teacher -> gone"},
      {"failed inside", "store j failed internal -> gone"},
      {"died", "store j cancelled worker_killed -> gone"},
      {"out of memory", "store j cancelled worker_killed -> gone"},
      {"out of memory, odd", "store j cancelled worker_killed -> gone"},
      {"out of memory at its begin", "store j cancelled worker_killed -> gone"},
      {"not started", "store j cancelled cancelled_by_user -> gone"},
      {"long time", "kill j -> cancel_by_force"}}},
    {"cancelling by force",
     {{"stop", "wake -> cancel_by_force"},
      {"finished", "store j succeeded -> gone"},
      {"cancelled", "store j cancelled cancelled_by_user -> gone"},
      {"failed", "store j cancelled worker_killed -> gone"},
      {"failed inside", "store j cancelled worker_killed -> gone"},
      {"died", "store j cancelled worker_killed -> gone"},
      {"out of memory", "store j cancelled worker_killed -> gone"},
      {"out of memory, odd", "store j cancelled worker_killed -> gone"},
      {"out of memory at its begin", "store j cancelled worker_killed -> gone"},
      {"not started", "store j cancelled cancelled_by_user -> gone"}}},
    {"requeuing",
     {{"cancel", "cancel-request j -> cancel"},
      {"finished", "store j succeeded -> gone"},
      {"cancelled", "store j queued service_stopped resume -> wait"},
      {"failed", "store j failed teacher -> gone"},
      {"failed inside", "store j queued service_stopped resume -> wait"},
      {"died", "store j queued service_stopped resume -> wait"},
      {"out of memory", "store j queued service_stopped resume -> wait"},
      {"out of memory, odd", "store j queued service_stopped resume -> wait"},
      {"out of memory at its begin", "store j queued service_stopped resume -> wait"},
      {"not started", "store j queued service_stopped resume -> wait"},
      {"long time", "kill j -> requeue_by_force"}}},
    {"requeuing by force",
     {{"cancel", "cancel-request j -> cancel_by_force"},
      {"finished", "store j succeeded -> gone"},
      {"cancelled", "store j queued service_stopped resume -> wait"},
      {"failed", "store j failed teacher -> gone"},
      {"failed inside", "store j queued service_stopped resume -> wait"},
      {"died", "store j queued service_stopped resume -> wait"},
      {"out of memory", "store j queued service_stopped resume -> wait"},
      {"out of memory, odd", "store j queued service_stopped resume -> wait"},
      {"out of memory at its begin", "store j queued service_stopped resume -> wait"},
      {"not started", "store j queued service_stopped resume -> wait"}}},
    {"cancelling, service stops",
     {{"finished", "store j succeeded -> gone"},
      {"cancelled", "store j cancelled cancelled_by_user -> gone"},
      {"failed", "store j failed teacher -> gone"},
      {"failed inside", "store j failed internal -> gone"},
      {"died", "store j cancelled worker_killed -> gone"},
      {"out of memory", "store j cancelled worker_killed -> gone"},
      {"out of memory, odd", "store j cancelled worker_killed -> gone"},
      {"out of memory at its begin", "store j cancelled worker_killed -> gone"},
      {"not started", "store j cancelled cancelled_by_user -> gone"},
      {"long time", "kill j -> cancel_by_force"}}},
    {"waiting, service stops", {{"cancel", "store j cancelled cancelled_by_user -> gone"}}},
};

std::string intent_text(const JobTable& table) {
    const auto intent = table.intent("j");
    return intent ? to_string(*intent) : "gone";
}

/// "action, action -> intent", of "j" and of the service.
std::string step_text(JobTable& table, Time now) {
    std::string text;
    for (const auto& action : texts_of(table.poll(now))) {
        if (action.find("other") == std::string::npos) {
            text += (text.empty() ? "" : ", ") + action;
        }
    }
    return text + " -> " + intent_text(table);
}

TEST(JobTable, EveryStateAnswersEveryEvent) {
    std::size_t expected = 0;
    for (const auto& [state, arrive] : kStates) {
        for (const auto& [event, happen] : kEvents) {
            JobTable table(kOneSlot);
            arrive(table);
            poll(table);
            const auto nothing = " -> " + intent_text(table);
            happen(table);
            const auto now = event == "short time" ? kNow + 999ms : event == "long time" ? kNow + 2min : kNow;
            const auto& row = kTable.at(state);
            const auto found = row.find(event);
            expected += found == row.end() ? 0 : 1;
            EXPECT_EQ(step_text(table, now), found == row.end() ? nothing : found->second) << state << " × " << event;
            EXPECT_LE(table.running(), 1U) << state << " × " << event;
            EXPECT_TRUE(texts_of(table.poll(now)).empty()) << state << " × " << event << ": poll twice";
        }
    }
    std::size_t rows = 0;
    for (const auto& [state, row] : kTable) {
        rows += row.size();
    }
    EXPECT_EQ(expected, rows) << "a row of the table names an event that there is not";
    EXPECT_EQ(kTable.size(), kStates.size());
}

TEST(JobTable, JudgesSubmissions) {
    const JobSubmission::Earlier same{true};
    const JobSubmission::Earlier other{false};
    struct Row {
        JobSubmission submission;
        SubmitVerdict verdict;
    };
    const std::vector<Row> rows{
        {{false, {}, "/free"}, SubmitVerdict::created},    {{false, {}, "/taken"}, SubmitVerdict::conflict},
        {{false, {}, {}}, SubmitVerdict::invalid},         {{false, same, "/taken"}, SubmitVerdict::existing},
        {{false, same, "/free"}, SubmitVerdict::existing}, {{false, other, "/free"}, SubmitVerdict::key_reused},
        {{false, other, {}}, SubmitVerdict::key_reused},   {{true, {}, "/free"}, SubmitVerdict::valid},
        {{true, {}, "/taken"}, SubmitVerdict::conflict},   {{true, {}, {}}, SubmitVerdict::invalid},
        {{true, other, "/free"}, SubmitVerdict::valid},
    };
    JobTable table(kOneSlot);
    table.start();
    table.enqueue("j", "/taken");
    for (std::size_t row = 0; row < rows.size(); ++row) {
        EXPECT_EQ(table.judge(rows[row].submission), rows[row].verdict) << row;
    }
    table.stop(kNow);
    for (std::size_t row = 0; row < rows.size(); ++row) {
        EXPECT_EQ(table.judge(rows[row].submission), SubmitVerdict::stopping) << row;
    }
}

TEST(JobTable, TakesNoMoreJobsThanMayWait) {
    JobTable table({.slots = 1, .max_queued = 2});
    table.start();
    const auto judged = [&table](bool dry_run) { return table.judge({dry_run, {}, "/new"}); };
    for (const auto* id : {"running", "a", "b"}) {
        EXPECT_EQ(judged(false), SubmitVerdict::created);
        table.enqueue(id, std::string("/") + id);
        poll(table);
    }
    EXPECT_EQ(judged(false), SubmitVerdict::queue_full);
    EXPECT_EQ(judged(true), SubmitVerdict::valid) << "nothing would wait";
    EXPECT_EQ(table.judge({false, JobSubmission::Earlier{true}, "/a"}), SubmitVerdict::existing);
    table.on_ended("running", outcome(Kind::finished), kNow);
    poll(table);
    EXPECT_EQ(judged(false), SubmitVerdict::created);
}

TEST(JobTable, HalvesUntilTheLimitAndThenFails) {
    JobTable table(kOneSlot);
    table.start();
    table.enqueue("j", "/j");
    MicroBatches cut{64, 1};
    auto now = kNow;
    for (const auto* next : {"start j resume 32x2", "start j resume 16x4", "start j resume 8x8"}) {
        static_cast<void>(table.poll(now));
        table.on_ended("j", out_of_memory(cut), now);
        now += 1s;
        auto actions = texts_of(table.poll(now));
        EXPECT_EQ(actions.back(), next);
        cut = *halved(cut);
    }
    table.on_ended("j", out_of_memory(cut), now);
    EXPECT_THAT(texts_of(table.poll(now)), ElementsAre("store j failed out_of_memory"));
}

TEST(JobTable, RestoresWhatTheLastServiceLeft) {
    JobTable table({2, 2min});
    table.restore({"ran", "/ran", true, false, false});
    table.restore({"waited", "/waited", false, false, false});
    table.restore({"cancelled", "/cancelled", true, true, false});
    table.restore({"stopped", "/stopped", false, false, true});
    EXPECT_THAT(texts_of(table.poll(kNow)), ElementsAre("store ran queued service_restarted resume",
                                                        "store cancelled cancelled cancelled_by_user"));
    table.start();
    EXPECT_THAT(texts_of(table.poll(kNow)), ElementsAre("start ran resume", "start waited"));
    EXPECT_EQ(table.queue_position("stopped"), 1U);
    EXPECT_EQ(table.output_user("/stopped"), "stopped");
    EXPECT_FALSE(table.output_user("/cancelled"));
}

TEST(JobTable, WhatKeepsAWorkerFromBeingStartedFailsNoJobAndKeepsTheQueue) {
    JobTable table({2, 2min});
    table.start();
    for (const auto* id : {"a", "b", "c"}) {
        table.enqueue(id, id);
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
    table.enqueue("j", "/j");
    table.enqueue("k", "/k");
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

TEST(JobTable, SaysWhenToCallAgain) {
    JobTable table(kOneSlot);
    table.start();
    EXPECT_FALSE(table.next_wakeup());
    table.enqueue("j", "/j");
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
