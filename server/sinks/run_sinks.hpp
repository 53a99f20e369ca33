#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/worker_events.hpp"
#include "pipeline/graph/trace_writer.hpp"
#include "server/sinks/registry.hpp"

namespace distilld::sinks {

/// The sinks of one run. What it is given goes to their queues and nothing is waited for, so that no sink, however slow
/// or dead, holds up the training or fails the job. Any thread, but for finish().
class RunSinks {
  public:
    virtual ~RunSinks() = default;

    virtual void take(const WorkerEvent& event) = 0;
    virtual void take(SpanRecord span) = 0;
    /// Whether anybody wants spans: making them is not for nothing.
    [[nodiscard]] virtual bool takes_spans() const = 0;
    /// Before a checkpoint is written: waits until the figures of the steps before it are where they belong, since a
    /// run that goes on from it does not tell them again. Blocks for kSettlePatience at most, and not at all for a sink
    /// that fails. Not on the thread of the graph.
    virtual void settle() = 0;
    /// Writes what is left, within kFlushPatience, and blocks until then. To be called once, after the last event.
    virtual void finish() = 0;

    [[nodiscard]] virtual std::vector<SinkCounters> counters() const = 0;
};

/// Opens the sinks that `context.spec` asks for. The error (invalid_input, io, disk_full) names the field. Blocks on
/// files. `warn` is called on threads of the sinks.
Result<std::unique_ptr<RunSinks>> open_sinks(const SinkContext& context, SinkRunner::Warn warn,
                                             std::span<const SinkRow> rows = sink_rows());

/// The spec as JSON for others to read: without the queries of endpoints, which may hold keys.
[[nodiscard]] std::string public_spec(const JobSpec& spec);

/// Gives the spans of a graph to `sinks`, and to `also` unless it is null. Both outlive it.
[[nodiscard]] std::unique_ptr<TraceWriter> make_span_feed(RunSinks& sinks, TraceWriter* also);

}  // namespace distilld::sinks
