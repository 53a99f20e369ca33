#pragma once

#include <cstdint>

namespace distilld {

/// The orders that a graph takes while it runs. One without checkpoints ignores orders about them. On the graph's
/// executor.
class RunningGraph {
  public:
    virtual ~RunningGraph() = default;
    /// Ends the run after the current micro-batch, with a checkpoint of the last whole step. A graph that keeps its
    /// work anyway just ends.
    virtual void cancel() = 0;
    /// A run that is cancelled, now or later, ends without that checkpoint; one being written is finished.
    virtual void forgo_last_checkpoint() {}
    /// A checkpoint at the next step boundary.
    virtual void request_checkpoint() {}
    virtual void set_max_concurrent(std::uint32_t limit) = 0;
};

}  // namespace distilld
