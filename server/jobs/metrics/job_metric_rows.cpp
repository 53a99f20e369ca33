#include "server/jobs/metrics/job_metric_rows.hpp"

#include <utility>

#include "server/jobs/metrics/metric_row_parts.hpp"

namespace distilld {
namespace {

using enum MetricType;
using api::JobState;

std::uint64_t count_of(const std::map<JobState, std::uint64_t>& counts, JobState state) {
    const auto found = counts.find(state);
    return found == counts.end() ? 0 : found->second;
}

MetricSamples jobs_by_state(const ServiceCounts& counts) {
    std::vector<MetricSample> samples;
    for (const auto& [name, state] : kEnumNames<api::JobState>) {
        samples.push_back({{name}, metric_number(count_of(counts.jobs, state))});
    }
    return samples;
}

MetricSamples finished_by_result(const ServiceCounts& counts) {
    std::vector<MetricSample> samples;
    for (const auto& [name, state] : kEnumNames<api::JobState>) {
        if (api::is_terminal(state)) {
            samples.push_back({{name}, metric_number(count_of(counts.finished, state))});
        }
    }
    return samples;
}

MetricSamples waiting_by_reason(const ServiceCounts& counts) {
    std::vector<MetricSample> samples;
    for (const auto& [reason, count] : counts.waiting) {
        samples.push_back({{reason}, metric_number(count)});
    }
    return samples;
}

MetricSamples webhook_attempts(const ServiceCounts& counts) {
    std::vector<MetricSample> samples;
    for (const auto& [result, count] : counts.webhook_attempts) {
        samples.push_back({{result}, metric_number(count)});
    }
    return samples;
}

MetricSamples slots_by_state(const ServiceCounts& counts) {
    std::vector<MetricSample> samples;
    for (const auto& [state, count] : counts.slots) {
        samples.push_back({{state}, metric_number(count)});
    }
    return samples;
}

template <class Read>
MetricSamples of_store(const ServiceCounts& counts, Read read) {
    return counts.store ? std::vector<MetricSample>{{{}, read(*counts.store)}} : std::vector<MetricSample>();
}

MetricSamples disks(const ServiceCounts& counts, std::uint64_t DiskUsage::* value) {
    std::vector<MetricSample> samples;
    for (const auto& [job_id, disk] : counts.disks) {
        samples.push_back({{job_id, disk.of}, metric_number(disk.*value)});
    }
    return samples;
}

std::vector<MetricRow<ServiceCounts>> service_rows() {
    return {
        {"distilld_jobs", "Jobs in the store, by state.", gauge, {"state"}, jobs_by_state},
        {"distilld_jobs_finished_total",
         "Jobs that ended since the service started, by result.",
         counter,
         {"result"},
         finished_by_result},
        {"distilld_jobs_waiting",
         "Jobs that wait for a teacher, for disk space or for a worker's restart.",
         gauge,
         {"reason"},
         waiting_by_reason},
        {"distilld_slots",
         "Slots for jobs (distilld serve --slots): busy slots run a job, free ones do not.",
         gauge,
         {"state"},
         slots_by_state},
        {"distilld_worker_restarts_total",
         "Workers that died and were started again.",
         counter,
         {},
         [](const ServiceCounts& counts) { return metric_number(counts.worker_restarts); }},
        {"distilld_webhook_deliveries_total",
         "Attempts to notify a receiver of the end of a job, by result.",
         counter,
         {"result"},
         webhook_attempts},
        {"distilld_worker_oom_restarts_total",
         "Workers that ran out of memory and were started again with smaller micro-batches.",
         counter,
         {},
         [](const ServiceCounts& counts) { return metric_number(counts.worker_oom_restarts); }},
        {"distilld_store_writable",
         "1 while the job store can be written, 0 while it cannot (a full disk).",
         gauge,
         {},
         [](const ServiceCounts& counts) {
             return of_store(counts, [](const StoreCounts& store) { return store.writable ? 1.0 : 0.0; });
         }},
        {"distilld_store_unsaved_events",
         "Events of jobs that wait in memory for the job store to be writable.",
         gauge,
         {},
         [](const ServiceCounts& counts) {
             return of_store(counts, [](const StoreCounts& store) { return metric_number(store.unsaved_events); });
         }},
        {"distilld_store_size_bytes",
         "Size of the job store's files.",
         gauge,
         {},
         [](const ServiceCounts& counts) {
             return of_store(counts, [](const StoreCounts& store) { return metric_number(store.size_bytes); });
         }},
        {"distilld_disk_free_bytes",
         "Free space for the service on a disk: that of the data folder, and those of an active job's output and "
         "checkpoints.",
         gauge,
         {"job_id", "of"},
         [](const ServiceCounts& counts) { return disks(counts, &DiskUsage::free_bytes); }},
        {"distilld_disk_size_bytes",
         "Size of a disk that is written to.",
         gauge,
         {"job_id", "of"},
         [](const ServiceCounts& counts) { return disks(counts, &DiskUsage::size_bytes); }},
        {"distilld_queue_wait_seconds",
         "Time from a job's submission to its first start.",
         histogram,
         {},
         [](const ServiceCounts& counts) { return counts.queue_waits; }},
        {"distilld_http_requests_total",
         "HTTP requests answered.",
         counter,
         {"code", "method", "route"},
         [](const ServiceCounts& counts) { return samples_of(counts.http_requests); }},
        {"distilld_http_request_duration_seconds",
         "Time from the request's head to the answer's end.",
         histogram,
         {"code", "route"},
         [](const ServiceCounts& counts) { return samples_of(counts.http_durations); }},
        {"distilld_build_info",
         "Version of the running program; always 1.",
         gauge,
         {"version"},
         [](const ServiceCounts& counts) { return std::vector<MetricSample>{{{counts.version}, 1.0}}; }},
    };
}

}  // namespace

JobMetricRows job_metric_rows() {
    JobMetricRows rows{{}, service_rows(), process_metric_rows()};
    for (const auto& table :
         {training_metric_rows(), teacher_metric_rows(), store_metric_rows(), worker_metric_rows()}) {
        rows.runs.insert(rows.runs.end(), table.begin(), table.end());
    }
    return rows;
}

}  // namespace distilld
