#include "server/jobs/metrics/metric_row_parts.hpp"

namespace distilld {
namespace {

using enum MetricType;

const WorkerUsage& usage_of(const JobRun& run) {
    return run.progress.measures.usage;
}

/// A worker that has reported nothing yet does not count as one without memory.
auto if_known(std::uint64_t WorkerUsage::* value) {
    return [value](const JobRun& run) {
        return usage_of(run).resident_bytes > 0 ? MetricSamples(usage_of(run).*value) : MetricSamples();
    };
}

MetricSamples device_memory(const JobRun& run) {
    const WorkerUsage& usage = usage_of(run);
    if (usage.device.empty()) {
        return {};
    }
    return std::vector<MetricSample>{{{usage.device, "allocated"}, usage.device_allocated_bytes},
                                     {{usage.device, "reserved"}, usage.device_reserved_bytes},
                                     {{usage.device, "peak"}, usage.device_peak_bytes},
                                     {{usage.device, "total"}, usage.device_total_bytes}};
}

auto by_sink(std::uint64_t SinkCounters::* count) {
    return [count](const JobRun& run) {
        std::vector<MetricSample> samples;
        for (const SinkCounters& sink : run.progress.measures.sinks) {
            samples.push_back({{sink.sink}, sink.*count});
        }
        return samples;
    };
}

}  // namespace

std::vector<MetricRow<JobRun>> worker_metric_rows() {
    using Row = MetricRow<JobRun>;
    return {
        Row("distilld_worker_resident_memory_bytes", "Resident memory of an active job's worker.", gauge, {"job_id"},
            if_known(&WorkerUsage::resident_bytes)),
        Row("distilld_worker_peak_resident_memory_bytes", "Most resident memory that an active job's worker has had.",
            gauge, {"job_id"}, if_known(&WorkerUsage::peak_resident_bytes)),
        Row("distilld_worker_open_fds", "Open file descriptors of an active job's worker.", gauge, {"job_id"},
            if_known(&WorkerUsage::open_files)),
        Row("distilld_device_memory_bytes",
            "Memory that an active job computes in: allocated, reserved (that and what is kept for later), the peak of "
            "what was allocated, and the total there is. On the CPU it is the worker's resident memory.",
            gauge, {"device", "job_id", "kind"}, device_memory),
        Row("distilld_worker_cpu_seconds_total", "User and system time of the workers of all jobs.", counter,
            [](const JobRun& run) { return usage_of(run).cpu_seconds; }),
        Row("distilld_sink_written_total",
            "Records of runs (start, steps, evaluations, checkpoints, spans, end) that a sink has written.", counter,
            {"sink"}, by_sink(&SinkCounters::written)),
        Row("distilld_sink_dropped_total",
            "Records of runs that a sink has lost: queue full, refused, or not written in time.", counter, {"sink"},
            by_sink(&SinkCounters::dropped)),
    };
}

}  // namespace distilld
