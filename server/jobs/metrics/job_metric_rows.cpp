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
        samples.push_back({{name}, count_of(counts.jobs, state)});
    }
    return samples;
}

MetricSamples finished_by_result(const ServiceCounts& counts) {
    std::vector<MetricSample> samples;
    for (const auto& [name, state] : kEnumNames<api::JobState>) {
        if (api::is_terminal(state)) {
            samples.push_back({{name}, count_of(counts.finished, state)});
        }
    }
    return samples;
}

template <class Value>
auto of_store(Value StoreCounts::* value) {
    return [value](const ServiceCounts& counts) {
        return counts.store ? MetricSamples(*counts.store.*value) : MetricSamples();
    };
}

auto of_disks(std::uint64_t DiskUsage::* value) {
    return [value](const ServiceCounts& counts) {
        std::vector<MetricSample> samples;
        for (const auto& [job_id, disk] : counts.disks) {
            samples.push_back({{job_id, disk.of}, disk.*value});
        }
        return samples;
    };
}

auto of_links(std::uint64_t LinkCounts::* value) {
    return [value](const ServiceCounts& counts) { return MetricSamples(counts.links.*value); };
}

auto of_nodes(std::uint64_t NodeCounts::* value) {
    return [value](const ServiceCounts& counts) {
        std::vector<MetricSample> samples;
        for (const auto& [state, nodes] : counts.nodes) {
            samples.push_back({{state}, nodes.*value});
        }
        return samples;
    };
}

MetricSamples build_info(const ServiceCounts& counts) {
    return std::vector<MetricSample>{{{counts.version}, 1.0}};
}

std::vector<MetricRow<ServiceCounts>> service_rows() {
    using Row = MetricRow<ServiceCounts>;
    return {
        Row("distilld_jobs", "Jobs in the store, by state.", gauge, {"state"}, jobs_by_state),
        Row("distilld_jobs_finished_total", "Jobs that ended since the service started, by result.", counter,
            {"result"}, finished_by_result),
        Row("distilld_jobs_waiting", "Jobs that wait for a teacher, a store, disk space or a worker's restart.", gauge,
            {"reason"}, &ServiceCounts::waiting),
        Row("distilld_nodes", "Machines that run workers, by state, as GET /v1/nodes lists them.", gauge, {"state"},
            of_nodes(&NodeCounts::nodes)),
        Row("distilld_nodes_with_jobs", "Machines that run jobs of this service, by state.", gauge, {"state"},
            of_nodes(&NodeCounts::with_jobs)),
        Row("distilld_node_cores", "Cores of the machines that run workers, by the machine's state.", gauge, {"state"},
            of_nodes(&NodeCounts::cores)),
        Row("distilld_slots", "Slots for jobs (distilld serve --slots): busy slots run a job, free ones do not.", gauge,
            {"state"}, &ServiceCounts::slots),
        Row("distilld_worker_restarts_total", "Workers that died and were started again.", counter,
            &ServiceCounts::worker_restarts),
        Row("distilld_webhook_deliveries_total", "Attempts to notify a receiver of the end of a job, by result.",
            counter, {"result"}, &ServiceCounts::webhook_attempts),
        Row("distilld_worker_oom_restarts_total",
            "Workers that ran out of memory and were started again with smaller micro-batches.", counter,
            &ServiceCounts::worker_oom_restarts),
        Row("distilld_store_writable", "1 while the job store can be written, 0 while it cannot (a full disk).", gauge,
            of_store(&StoreCounts::writable)),
        Row("distilld_store_unsaved_events", "Events of jobs that wait in memory for the job store to be writable.",
            gauge, of_store(&StoreCounts::unsaved_events)),
        Row("distilld_store_size_bytes", "Size of the job store's files.", gauge, of_store(&StoreCounts::size_bytes)),
        Row("distilld_disk_free_bytes",
            "Free space for the service on a disk: that of the data folder, and those of an active job's output and "
            "checkpoints.",
            gauge, {"job_id", "of"}, of_disks(&DiskUsage::free_bytes)),
        Row("distilld_disk_size_bytes", "Size of a disk that is written to.", gauge, {"job_id", "of"},
            of_disks(&DiskUsage::size_bytes)),
        Row("distilld_queue_wait_seconds", "Time from a job's submission to its first start.", histogram,
            &ServiceCounts::queue_waits),
        Row("distilld_http_requests_total", "HTTP requests answered.", counter, {"code", "method", "route"},
            &ServiceCounts::http_requests),
        Row("distilld_http_request_duration_seconds", "Time from the request's head to the answer's end.", histogram,
            {"code", "route"}, &ServiceCounts::http_durations),
        Row("distilld_relay_connections_total", "Connections that relays of workers on other machines have opened.",
            counter, of_links(&LinkCounts::connections)),
        Row("distilld_relay_reconnects_total",
            "Connections of relays that had been connected before, to this run of the service or an earlier one.",
            counter, of_links(&LinkCounts::reconnects)),
        Row("distilld_relays_connected", "Relays of workers on other machines that are connected.", gauge,
            of_links(&LinkCounts::connected)),
        Row("distilld_relay_unacknowledged_messages",
            "Messages to relays that wait for an acknowledgement, because a relay is not there or has not answered.",
            gauge, of_links(&LinkCounts::unacknowledged)),
        Row("distilld_node_attempts", "Attempts of jobs that run on each machine, as GET /v1/nodes lists them.", gauge,
            {"node"}, &ServiceCounts::attempts),
        Row("distilld_build_info", "Version of the running program; always 1.", gauge, {"version"}, build_info),
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
