#pragma once

#include <cstdint>

namespace distilld {

/// What orders to a run reach while its graph is at work. On the graph's executor.
class RunningGraph {
  public:
    virtual ~RunningGraph() = default;
    /// Ends the run after the micro-batch under way, with a checkpoint of the last whole step; one that keeps what it
    /// has done anyway just ends.
    virtual void cancel() = 0;
    /// A run that is cancelled, now or later, ends without that checkpoint; one that is being written is finished.
    virtual void forgo_last_checkpoint() = 0;
    /// A checkpoint at the next step boundary.
    virtual void request_checkpoint() = 0;
    virtual void set_max_concurrent(std::uint32_t limit) = 0;
};

}  // namespace distilld
