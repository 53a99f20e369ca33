#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "server/supervisor/micro_batches.hpp"

namespace distilld {

/// What is tried for a job whose worker dies or cannot be started.
struct RestartLimits {
    std::uint32_t max_restarts = 3;             ///< of a worker that dies, in a row without progress
    std::chrono::milliseconds min_pause{1000};  ///< before the first; doubles from one to the next
    std::chrono::milliseconds max_pause{30000};
    std::uint32_t max_oom_restarts =
        3;  ///< of one job whose worker runs out of memory, each with smaller micro-batches
};

/// What becomes of a job whose worker ran out of memory.
struct OomVerdict {
    std::optional<MicroBatches> smaller;  ///< it is started again, with these; nothing: the job has failed
    std::chrono::milliseconds pause{};    ///< before that
    std::string text;                     ///< what follows the sentence on what happened
};

/// How far a run of a job came.
struct RunReach {
    std::uint64_t first_step = 0;  ///< steps of the checkpoint that it went on from
    std::uint64_t last_step = 0;   ///< newest step that it told of
};

/// Whether and when the next worker of one job is started. A worker that dies is started again from the newest
/// checkpoint, up to the limit in a row without progress: a step that no run before reached, or a checkpoint that no
/// run before started from. Both only grow and the job's steps are their bound, so nothing is started for ever. One
/// that runs out of memory is started again with half the micro-batch, up to a limit of its own. What keeps a worker
/// from being started at all is no fault of its job, and is tried until it has passed. Pure.
class RestartPolicy {
  public:
    /// A worker that was told its job died. The pause before the next; nullopt: there is none, the job has failed.
    [[nodiscard]] std::optional<std::chrono::milliseconds> on_died(const RestartLimits& limits, RunReach reach);
    /// A worker that ran out of memory at these micro-batches, which are known.
    [[nodiscard]] OomVerdict on_out_of_memory(const RestartLimits& limits, const MicroBatches& in_force);
    /// None could be started. The pause before the next try.
    [[nodiscard]] std::chrono::milliseconds on_not_started(const RestartLimits& limits);

    // What follows the sentence on what happened.
    /// "; restart 1 of 3 from the newest checkpoint in 1 s"
    [[nodiscard]] std::string restart_text(const RestartLimits& limits, std::chrono::milliseconds pause) const;
    /// "; it died 4 times in a row without progress"; empty when it was the first.
    [[nodiscard]] std::string given_up_text() const;
    /// "; tried again in 1 s"
    [[nodiscard]] static std::string retry_text(std::chrono::milliseconds pause);

  private:
    RunReach best_;
    std::uint32_t oom_restarts_ = 0;
    std::uint32_t deaths_ = 0;         ///< in a row without progress
    std::uint32_t failed_starts_ = 0;  ///< in a row
};

}  // namespace distilld
