#pragma once

#include <cstdint>
#include <optional>

#include "base/time.hpp"
#include "pipeline/core/spec_sections.hpp"

namespace distilld {

/// When a checkpoint is due: after a number of steps, or after a time since the last one was on the disk, whichever
/// comes first. Time decides when a checkpoint is written, never its content. Pure.
class CheckpointSchedule {
  public:
    /// Uses every_steps and every_secs of `spec`; 0 disables one. The run begins at `start`.
    CheckpointSchedule(const CheckpointSpec& spec, Instant start);

    /// Whether a checkpoint is due after `step` steps. Step numbers count even while a checkpoint is being written.
    /// Time does not, because a disk slower than the interval would always hold up training.
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
