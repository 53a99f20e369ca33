#include "server/jobs/metrics/metric_row_parts.hpp"

namespace distilld {
namespace {

using enum MetricType;

const WorkerUsage& usage_of(const JobRun& run) {
    return run.progress.measures.usage;
}

/// A worker that has reported nothing yet does not count as one without memory.
template <class Number>
MetricSamples if_known(const JobRun& run, Number value) {
    return usage_of(run).resident_bytes > 0 ? std::vector<MetricSample>{{{}, metric_number(value)}}
                                            : std::vector<MetricSample>();
}

MetricSamples device_memory(const JobRun& run) {
    const WorkerUsage& usage = usage_of(run);
    if (usage.device.empty()) {
        return std::vector<MetricSample>();
    }
    return std::vector<MetricSample>{{{usage.device, "allocated"}, metric_number(usage.device_allocated_bytes)},
                                     {{usage.device, "reserved"}, metric_number(usage.device_reserved_bytes)},
                                     {{usage.device, "peak"}, metric_number(usage.device_peak_bytes)},
                                     {{usage.device, "total"}, metric_number(usage.device_total_bytes)}};
}

MetricSamples by_sink(const JobRun& run, std::uint64_t SinkCounters::* count) {
    std::vector<MetricSample> samples;
    for (const SinkCounters& sink : run.progress.measures.sinks) {
        samples.push_back({{sink.sink}, metric_number(sink.*count)});
    }
    return samples;
}

}  // namespace

std::vector<MetricRow<JobRun>> worker_metric_rows() {
    return {
        {"distilld_worker_resident_memory_bytes",
         "Resident memory of an active job's worker.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return if_known(run, usage_of(run).resident_bytes); }},
        {"distilld_worker_peak_resident_memory_bytes",
         "Most resident memory that an active job's worker has had.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return if_known(run, usage_of(run).peak_resident_bytes); }},
        {"distilld_worker_open_fds",
         "Open file descriptors of an active job's worker.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return if_known(run, usage_of(run).open_files); }},
        {"distilld_device_memory_bytes",
         "Memory that an active job computes in: allocated, reserved (that and what is kept for later), the peak of "
         "what "
         "was allocated, and the total there is. On the CPU it is the worker's resident memory.",
         gauge,
         {"device", "job_id", "kind"},
         device_memory},
        {"distilld_worker_cpu_seconds_total",
         "User and system time of the workers of all jobs.",
         counter,
         {},
         [](const JobRun& run) { return usage_of(run).cpu_seconds; }},
        {"distilld_sink_written_total",
         "Records of runs (start, steps, evaluations, checkpoints, spans, end) that a sink has written.",
         counter,
         {"sink"},
         [](const JobRun& run) { return by_sink(run, &SinkCounters::written); }},
        {"distilld_sink_dropped_total",
         "Records of runs that a sink has lost: queue full, refused, or not written in time.",
         counter,
         {"sink"},
         [](const JobRun& run) { return by_sink(run, &SinkCounters::dropped); }},
    };
}

}  // namespace distilld
