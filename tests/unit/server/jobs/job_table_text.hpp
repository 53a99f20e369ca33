#pragma once

#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "server/jobs/job_table.hpp"

namespace distilld::test {

/// Of a job that writes to one folder and uses nothing else.
inline PathClaims writes(const std::string& folder, const std::string& owner = "") {
    return {{{folder, api::PathUse::writes, "/output"}}, owner};
}

/// An action as a short line; the readable form of the tables.
struct ActionText {
    std::string operator()(const StartWorkerAction& it) const {
        return "start " + it.id + (it.resume ? " resume" : "") +
               (it.cut ? " " + std::to_string(it.cut->batch_size) + "x" + std::to_string(it.cut->micro_batches) : "");
    }
    std::string operator()(const StopWorkerAction& it) const {
        return "stop " + it.id + (it.last == LastCheckpoint::skip ? " unsaved" : "");
    }
    std::string operator()(const CheckpointWorkerAction& it) const { return "checkpoint " + it.id; }
    std::string operator()(const KillWorkerAction& it) const { return "kill " + it.id; }
    std::string operator()(const StoreStateAction& it) const {
        return "store " + it.id + " " + api::to_string(it.state) + (it.reason ? " " + it.reason->code : "") +
               (it.resume ? " resume" : "") + (it.waits ? " waits" : "");
    }
    std::string operator()(const StoreCancelRequestAction& it) const { return "cancel-request " + it.id; }
    std::string operator()(const StoreNoteAction& it) const { return "note " + it.id + " " + it.message; }
    std::string operator()(const WakeReadersAction&) const { return "wake"; }
};

inline std::vector<std::string> texts_of(const std::vector<JobAction>& actions) {
    std::vector<std::string> result;
    for (const auto& action : actions) {
        result.push_back(std::visit(ActionText{}, action));
    }
    return result;
}

inline WorkerOutcome outcome(WorkerOutcome::Kind kind, const std::string& code = "", bool checkpoint = false) {
    return {kind, checkpoint, {code, code.empty() ? "" : "because"}, {}};
}

/// The run had cut its steps so; {}: it had not begun.
inline WorkerOutcome out_of_memory(MicroBatches cut) {
    auto result = outcome(WorkerOutcome::Kind::out_of_memory, "out_of_memory");
    result.cut = cut;
    return result;
}

}  // namespace distilld::test
