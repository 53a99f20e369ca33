#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "pipeline/core/worker_events.hpp"
#include "pipeline/graph/trace_writer.hpp"
#include "server/sinks/registry.hpp"

namespace distilld::sinks {

struct OpenSink {
    Takes takes;
    std::unique_ptr<SinkRunner> runner;
};

/// The sinks of one run. Records are queued without waiting, so a slow or dead sink neither delays nor fails the job.
/// Any thread, except for finish().
class RunSinks {
  public:
    /// Use open_sinks().
    RunSinks(std::vector<OpenSink> sinks, std::uint64_t first_step)
        : sinks_(std::move(sinks)), last_step_(first_step) {}

    void take(const WorkerEvent& event);
    void take(SpanRecord span);
    /// Whether a sink takes spans, which cost time to produce.
    [[nodiscard]] bool takes_spans() const;
    /// To be called before a checkpoint is written: waits until the metrics of its steps are written, because a run
    /// resumed from it does not report them again. Blocks at most for kSettleTimeout, and not for a failing sink. Not
    /// on the thread of the graph.
    void settle();
    /// Writes the remaining records; blocks at most for kFlushTimeout. Call it once, after the last event.
    void finish();

    [[nodiscard]] std::vector<SinkCounters> counters() const;

  private:
    std::vector<OpenSink> sinks_;
    std::atomic<std::uint64_t> last_step_;
};

/// Opens the sinks that `context.spec` requests. The error (invalid_input, io, disk_full) names the field. Blocks on
/// files. `warn` is called on the sinks' threads.
Result<std::unique_ptr<RunSinks>> open_sinks(const SinkContext& context, SinkRunner::Warn warn,
                                             std::span<const SinkRow> rows = sink_rows());

/// The spec as JSON for others to read: without the queries of URLs, which may hold keys.
[[nodiscard]] std::string public_spec(const JobSpec& spec);

/// Passes the spans of a graph to `sinks`, and to `also` if it is not null. Both must outlive it.
[[nodiscard]] std::unique_ptr<TraceWriter> make_span_feed(RunSinks& sinks, TraceWriter* also);

}  // namespace distilld::sinks
