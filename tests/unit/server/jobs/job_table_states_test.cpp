#include "server/jobs/table/job_table.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/server/jobs/job_table_text.hpp"

namespace distilld {
namespace {

using namespace std::chrono_literals;
using test::out_of_memory;
using test::outcome;
using test::texts_of;
using Kind = WorkerOutcome::Kind;
using Time = JobTable::Time;

constexpr Time kNow{};
constexpr JobTableOptions kOneSlot{1, 2min};

/// A step of a table with the job "j" in it (and "other", which takes the slot where "j" has to wait).
using Step = std::function<void(JobTable&)>;

void poll(JobTable& table) {
    static_cast<void>(table.poll(kNow));
}

const std::map<std::string, Step> kStates{
    {"unknown", [](JobTable& table) { table.start(); }},
    {"restored", [](JobTable& table) { table.restore({"j", test::writes("/j"), false, false, false}); }},
    {"waiting",
     [](JobTable& table) {
         table.start();
         table.enqueue("other", test::writes("/other"));
         table.enqueue("j", test::writes("/j"));
     }},
    {"not started",
     [](JobTable& table) {
         table.start();
         table.enqueue("j", test::writes("/j"));
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
         table.enqueue("j", test::writes("/j"));
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
    {"restored paused", [](JobTable& table) { table.restore({"j", test::writes("/j"), false, false, true, true}); }},
    {"restored on the way to a pause",
     [](JobTable& table) { table.restore({"j", test::writes("/j"), true, false, false, true}); }},
    {"paused while it waited",
     [](JobTable& table) {
         kStates.at("waiting")(table);
         table.pause("j", kNow);
     }},
    {"paused",
     [](JobTable& table) {
         kStates.at("pausing")(table);
         poll(table);
         table.on_ended("j", outcome(Kind::cancelled, "", true), kNow);
     }},
    {"pausing",
     [](JobTable& table) {
         kStates.at("running")(table);
         poll(table);
         table.pause("j", kNow);
     }},
    {"pausing by force",
     [](JobTable& table) {
         kStates.at("pausing")(table);
         static_cast<void>(table.poll(kNow + 2min));
     }},
    {"pausing, service stops",
     [](JobTable& table) {
         kStates.at("pausing")(table);
         poll(table);
         table.stop(kNow);
     }},
    {"resuming",
     [](JobTable& table) {
         kStates.at("pausing")(table);
         poll(table);
         table.resume("j");
     }},
    {"resuming by force",
     [](JobTable& table) {
         kStates.at("resuming")(table);
         static_cast<void>(table.poll(kNow + 2min));
     }},
};

const std::map<std::string, Step> kEvents{
    {"restore", [](JobTable& table) { table.restore({"j", test::writes("/elsewhere"), true, false, true}); }},
    {"start", [](JobTable& table) { table.start(); }},
    {"stop", [](JobTable& table) { table.stop(kNow); }},
    {"enqueue", [](JobTable& table) { table.enqueue("j", test::writes("/j")); }},
    {"cancel", [](JobTable& table) { table.cancel("j", kNow); }},
    {"cancel unsaved", [](JobTable& table) { table.cancel("j", kNow, LastCheckpoint::skip); }},
    {"pause", [](JobTable& table) { table.pause("j", kNow); }},
    {"resume", [](JobTable& table) { table.resume("j"); }},
    {"checkpoint", [](JobTable& table) { table.tell("j", CheckpointCommand{}, "checkpoint requested"); }},
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
     {{"pause", "store j paused paused_by_user -> paused"},
      {"cancel unsaved", "store j cancelled cancelled_by_user -> gone"},
      {"start", "start j -> run"},
      {"stop", "wake -> wait"},
      {"cancel", "store j cancelled cancelled_by_user -> gone"}}},
    {"waiting",
     {{"pause", "store j paused paused_by_user -> paused"},
      {"cancel unsaved", "store j cancelled cancelled_by_user -> gone"},
      {"stop", "wake -> wait"},
      {"cancel", "store j cancelled cancelled_by_user -> gone"}}},
    {"not started",
     {{"pause", "store j paused paused_by_user -> paused"},
      {"cancel unsaved", "store j cancelled cancelled_by_user -> gone"},
      {"stop", "wake -> wait"},
      {"cancel", "store j cancelled cancelled_by_user -> gone"},
      {"long time", "start j -> run"}}},
    {"died",
     {{"pause", "store j paused paused_by_user resume -> paused"},
      {"cancel unsaved", "store j cancelled cancelled_by_user -> gone"},
      {"stop", "wake -> wait"},
      {"cancel", "store j cancelled cancelled_by_user -> gone"},
      {"long time", "start j resume -> run"}}},
    {"out of memory",
     {{"pause", "store j paused paused_by_user resume -> paused"},
      {"cancel unsaved", "store j cancelled cancelled_by_user -> gone"},
      {"stop", "wake -> wait"},
      {"cancel", "store j cancelled cancelled_by_user -> gone"},
      {"long time", "start j resume 4x2 -> run"}}},
    {"died for the last time", {{"enqueue", "start j -> run"}, {"stop", "wake -> gone"}}},
    {"running",
     {{"pause", "store j pausing paused_by_user resume, stop j -> pause"},
      {"checkpoint", "note j checkpoint requested, checkpoint j -> run"},
      {"cancel unsaved", "cancel-request j, stop j unsaved -> cancel"},
      {"stop", "stop j, wake -> requeue"},
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
     {{"cancel unsaved", "stop j unsaved -> cancel"},
      {"stop", "wake -> cancel"},
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
     {{"pause", "store j pausing paused_by_user resume -> pause"},
      {"cancel unsaved", "cancel-request j, stop j unsaved -> cancel"},
      {"cancel", "cancel-request j -> cancel"},
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
     {{"pause", "store j pausing paused_by_user resume -> pause_by_force"},
      {"cancel unsaved", "cancel-request j -> cancel_by_force"},
      {"cancel", "cancel-request j -> cancel_by_force"},
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
     {{"cancel unsaved", "stop j unsaved -> cancel"},
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
    {"waiting, service stops",
     {{"pause", "store j paused paused_by_user -> paused"},
      {"cancel unsaved", "store j cancelled cancelled_by_user -> gone"},
      {"cancel", "store j cancelled cancelled_by_user -> gone"}}},
    {"restored paused",
     {{"stop", "wake -> paused"},
      {"cancel", "store j cancelled cancelled_by_user -> gone"},
      {"cancel unsaved", "store j cancelled cancelled_by_user -> gone"},
      {"resume", "note j resume requested, store j queued resume -> wait"}}},
    {"restored on the way to a pause",
     {{"stop", "wake -> paused"},
      {"cancel", "store j cancelled cancelled_by_user -> gone"},
      {"cancel unsaved", "store j cancelled cancelled_by_user -> gone"},
      {"resume", "note j resume requested, store j queued resume -> wait"}}},
    {"paused while it waited",
     {{"stop", "wake -> paused"},
      {"cancel", "store j cancelled cancelled_by_user -> gone"},
      {"cancel unsaved", "store j cancelled cancelled_by_user -> gone"},
      {"resume", "note j resume requested, store j queued -> wait"}}},
    {"paused",
     {{"stop", "wake -> paused"},
      {"cancel", "store j cancelled cancelled_by_user -> gone"},
      {"cancel unsaved", "store j cancelled cancelled_by_user -> gone"},
      {"resume", "note j resume requested, store j queued resume, start j resume -> run"}}},
    {"pausing",
     {{"stop", "wake -> pause"},
      {"cancel", "cancel-request j -> cancel"},
      {"cancel unsaved", "cancel-request j, stop j unsaved -> cancel"},
      {"resume", "store j pausing resumed_by_user resume -> resume"},
      {"finished", "store j succeeded -> gone"},
      {"cancelled", "store j paused paused_by_user resume -> paused"},
      {"failed", "store j failed teacher -> gone"},
      {"failed inside", "store j failed internal -> gone"},
      {"died", "store j paused paused_by_user resume -> paused"},
      {"out of memory", "store j paused paused_by_user resume -> paused"},
      {"out of memory, odd", "store j paused paused_by_user resume -> paused"},
      {"out of memory at its begin", "store j paused paused_by_user resume -> paused"},
      {"not started", "store j paused paused_by_user -> paused"},
      {"long time", "kill j -> pause_by_force"}}},
    {"pausing by force",
     {{"stop", "wake -> pause_by_force"},
      {"cancel", "cancel-request j -> cancel_by_force"},
      {"cancel unsaved", "cancel-request j -> cancel_by_force"},
      {"resume", "store j pausing resumed_by_user resume -> resume_by_force"},
      {"finished", "store j succeeded -> gone"},
      {"cancelled", "store j paused paused_by_user resume -> paused"},
      {"failed", "store j paused paused_by_user resume -> paused"},
      {"failed inside", "store j paused paused_by_user resume -> paused"},
      {"died", "store j paused paused_by_user resume -> paused"},
      {"out of memory", "store j paused paused_by_user resume -> paused"},
      {"out of memory, odd", "store j paused paused_by_user resume -> paused"},
      {"out of memory at its begin", "store j paused paused_by_user resume -> paused"},
      {"not started", "store j paused paused_by_user -> paused"}}},
    {"pausing, service stops",
     {{"cancel", "cancel-request j -> cancel"},
      {"cancel unsaved", "cancel-request j, stop j unsaved -> cancel"},
      {"resume", "store j pausing resumed_by_user resume -> requeue"},
      {"finished", "store j succeeded -> gone"},
      {"cancelled", "store j paused paused_by_user resume -> paused"},
      {"failed", "store j failed teacher -> gone"},
      {"failed inside", "store j failed internal -> gone"},
      {"died", "store j paused paused_by_user resume -> paused"},
      {"out of memory", "store j paused paused_by_user resume -> paused"},
      {"out of memory, odd", "store j paused paused_by_user resume -> paused"},
      {"out of memory at its begin", "store j paused paused_by_user resume -> paused"},
      {"not started", "store j paused paused_by_user -> paused"},
      {"long time", "kill j -> pause_by_force"}}},
    {"resuming",
     {{"stop", "wake -> requeue"},
      {"cancel", "cancel-request j -> cancel"},
      {"cancel unsaved", "cancel-request j, stop j unsaved -> cancel"},
      {"pause", "store j pausing paused_by_user resume -> pause"},
      {"finished", "store j succeeded -> gone"},
      {"cancelled", "store j queued resume, start j resume -> run"},
      {"failed", "store j failed teacher -> gone"},
      {"failed inside", "store j failed internal -> gone"},
      {"died", "store j queued resume, start j resume -> run"},
      {"out of memory", "store j queued resume, start j resume -> run"},
      {"out of memory, odd", "store j queued resume, start j resume -> run"},
      {"out of memory at its begin", "store j queued resume, start j resume -> run"},
      {"not started", "store j queued resume, start j resume -> run"},
      {"long time", "kill j -> resume_by_force"}}},
    {"resuming by force",
     {{"stop", "wake -> requeue_by_force"},
      {"cancel", "cancel-request j -> cancel_by_force"},
      {"cancel unsaved", "cancel-request j -> cancel_by_force"},
      {"pause", "store j pausing paused_by_user resume -> pause_by_force"},
      {"finished", "store j succeeded -> gone"},
      {"cancelled", "store j queued resume, start j resume -> run"},
      {"failed", "store j queued resume, start j resume -> run"},
      {"failed inside", "store j queued resume, start j resume -> run"},
      {"died", "store j queued resume, start j resume -> run"},
      {"out of memory", "store j queued resume, start j resume -> run"},
      {"out of memory, odd", "store j queued resume, start j resume -> run"},
      {"out of memory at its begin", "store j queued resume, start j resume -> run"},
      {"not started", "store j queued resume, start j resume -> run"}}},
};

std::string intent_text(const JobTable& table) {
    const auto intent = table.intent("j");
    if (!intent) {
        return "gone";
    }
    if (intent->phase == JobPhase::waiting) {
        return "wait";
    }
    if (intent->phase == JobPhase::resting) {
        return "paused";
    }
    const std::map<JobWish, std::string> names{{JobWish::run, "run"},
                                               {JobWish::pause, "pause"},
                                               {JobWish::resume, "resume"},
                                               {JobWish::cancel, "cancel"},
                                               {JobWish::requeue, "requeue"}};
    return names.at(intent->wish) + (intent->phase == JobPhase::killed ? "_by_force" : "");
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

}  // namespace
}  // namespace distilld
