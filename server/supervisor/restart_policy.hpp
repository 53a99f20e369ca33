#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "pipeline/core/worker_events.hpp"
#include "server/supervisor/micro_batches.hpp"

namespace distilld {

/// Limits for restarting workers that die or cannot be started.
struct RestartLimits {
    std::uint32_t max_restarts = 3;             ///< after deaths, in a row without progress
    std::chrono::milliseconds min_pause{1000};  ///< before the first restart; doubles each time
    std::chrono::milliseconds max_pause{30000};
    std::uint32_t max_oom_restarts = 3;  ///< per job after running out of memory, each with smaller micro-batches
};

/// How far one run of a job came, according to its worker.
struct RunReach {
    std::uint64_t first_step = 0;  ///< step of the checkpoint that it started from
    std::uint64_t last_step = 0;   ///< newest step that it reported
    MicroBatches split{};          ///< of its steps; unknown until it starts

    void take(const WorkerEvent& event);
};

/// What to do after a worker died or could not be started.
struct RestartVerdict {
    std::optional<std::chrono::milliseconds> pause;  ///< before the next start; nullopt: the job has failed
    std::optional<MicroBatches> smaller{};           ///< for the next worker, because memory ran out
    std::string text{};                              ///< appended to the sentence on what happened
};

/// Decides whether and when a job's next worker starts. A worker that dies is restarted from the newest checkpoint, up
/// to a limit of deaths in a row without progress: a step that no earlier run reached, or a checkpoint that no earlier
/// run started from. Both only grow, and the job's steps bound them, so restarts end. A worker that runs out of memory
/// is restarted with half the micro-batch, up to a separate limit. A worker that cannot be started is not its job's
/// fault: starts are tried until one succeeds. Pure.
class RestartPolicy {
  public:
    /// A worker died after it was told its job, perhaps because memory ran out. Smaller micro-batches cannot help a run
    /// that had not begun: it counts as an ordinary death.
    [[nodiscard]] RestartVerdict on_died(const RestartLimits& limits, const RunReach& reach,
                                         bool out_of_memory = false);
    /// No worker could be started.
    [[nodiscard]] RestartVerdict on_not_started(const RestartLimits& limits);

  private:
    RestartVerdict on_out_of_memory(const RestartLimits& limits, const MicroBatches& effective);

    RunReach best_;
    std::uint32_t oom_restarts_ = 0;
    std::uint32_t deaths_ = 0;         ///< in a row without progress
    std::uint32_t failed_starts_ = 0;  ///< in a row
};

}  // namespace distilld
