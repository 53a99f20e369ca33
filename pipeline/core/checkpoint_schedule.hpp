#pragma once

#include <cstdint>
#include <optional>

#include "base/time.hpp"
#include "pipeline/core/job_spec.hpp"

namespace distilld {

/// When a checkpoint is due: every so many steps, or when so much time has passed since the last one was on the disk,
/// whichever comes first. Time decides when a checkpoint is written, never what is in it. Pure.
class CheckpointSchedule {
  public:
    /// Of `spec`, every_steps and every_secs count, 0 of either = not by that. The run begins at `start`.
    CheckpointSchedule(const CheckpointSpec& spec, Instant start);

    /// After `step` steps. A step number and a request for one are due even while one is being written; time is not,
    /// or a disk that is slower than the interval would hold the training up all the time.
    [[nodiscard]] bool due(std::uint64_t step, Instant now) const;

    /// A checkpoint has been taken and is being written.
    void on_begun() { since_.reset(); }
    /// It is on the disk.
    void on_written(Instant now) { since_ = now; }

  private:
    std::uint64_t every_steps_;
    Nanos every_;
    std::optional<Instant> since_;  // absent: one is being written
};

}  // namespace distilld
