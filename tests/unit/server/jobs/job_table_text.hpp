#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "server/jobs/table/job_table.hpp"

namespace distilld::test {

/// Of a job that writes to one folder and uses nothing else.
inline PathClaims writes(const std::string& folder, const std::string& owner = "") {
    return {{{folder, api::PathUse::writes, "/output"}}, owner};
}

/// The job that has not ended and is in the way of one that would write there.
inline std::optional<std::string> output_user(const JobTable& table, const std::string& output) {
    const auto taken = table.conflict(writes(output));
    return taken && !taken->ended ? std::optional(taken->job) : std::nullopt;
}

/// An action as a short line; the readable form of the tables.
struct ActionText {
    std::string operator()(const StartWorkerAction& it) const {
        return "start " + it.id + (it.resume ? " resume" : "") +
               (it.split ? " " + std::to_string(it.split->batch_size) + "x" + std::to_string(it.split->micro_batches)
                         : "");
    }
    std::string operator()(const AdoptWorkerAction& it) const { return "adopt " + it.id; }
    std::string operator()(const TellWorkerAction& it) const {
        if (const auto* cancel = std::get_if<CancelCommand>(&it.order)) {
            return "stop " + it.id + (cancel->checkpoint ? "" : " unsaved");
        }
        return (std::holds_alternative<CheckpointCommand>(it.order) ? "checkpoint " : "limit ") + it.id;
    }
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
inline WorkerOutcome out_of_memory(MicroBatches split) {
    auto result = outcome(WorkerOutcome::Kind::out_of_memory, "out_of_memory");
    result.reach.split = split;
    return result;
}

}  // namespace distilld::test
