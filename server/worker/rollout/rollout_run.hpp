#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "pipeline/graph/graph_options.hpp"
#include "pipeline/teacher/rollout/kept_rollouts.hpp"
#include "pipeline/teacher/teacher_source.hpp"
#include "server/worker/emit_event.hpp"
#include "server/worker/orders.hpp"

namespace distilld {

struct PreparedRun;

/// What a job with /rollout trains with.
struct RolloutRun {
    RolloutPlan plan;
    std::filesystem::path folder;        ///< of the weights for the servers
    std::string name;                    ///< the beginning of their names there
    std::shared_ptr<KeptRollouts> kept;  ///< null: rollout.keep is false
    std::unique_ptr<TeacherSource> servers;
    TeacherInfo info;
};

/// Makes `run.rollout` if the job has /rollout and steps are left: writes the probe's adapter, opens the file of kept
/// answers and probes the servers. The run has its folders, its student and its first step. Error of kind `cancelled`:
/// `control` was. Executor of `executors.io`.
boost::asio::awaitable<Result<void>> prepare_rollouts(PreparedRun& run, GraphExecutors executors, RunControl& control,
                                                      EmitEvent emit);

/// For a run with rollouts.
[[nodiscard]] RolloutOptions rollout_options(PreparedRun& run, std::uint32_t decode_threads);

/// Unloads the adapters. Removes their folder if the run has `finished`, and one of more steps would not need it.
boost::asio::awaitable<void> end_rollouts(PreparedRun& run, boost::asio::any_io_executor disk, bool finished);

}  // namespace distilld
