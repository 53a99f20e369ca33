#include "server/jobs/job_metric_rows.hpp"

#include <array>
#include <cmath>
#include <optional>

#include "pipeline/core/stage.hpp"

namespace distilld {
namespace {

using enum MetricType;
using api::JobState;

template <class Number>
double number(Number value) {
    return static_cast<double>(value);
}

std::uint64_t count_of(const std::map<JobState, std::uint64_t>& counts, JobState state) {
    const auto found = counts.find(state);
    return found == counts.end() ? 0 : found->second;
}

MetricSamples jobs_by_state(const ServiceCounts& counts) {
    std::vector<MetricSample> samples;
    for (const auto& [name, state] : api::kJobStateNames) {
        samples.push_back({{name}, number(count_of(counts.jobs, state))});
    }
    return samples;
}

MetricSamples finished_by_result(const ServiceCounts& counts) {
    std::vector<MetricSample> samples;
    for (const auto& [name, state] : api::kJobStateNames) {
        if (api::is_terminal(state)) {
            samples.push_back({{name}, number(count_of(counts.finished, state))});
        }
    }
    return samples;
}

MetricSamples waiting_by_reason(const ServiceCounts& counts) {
    std::vector<MetricSample> samples;
    for (const auto& [reason, count] : counts.waiting) {
        samples.push_back({{reason}, number(count)});
    }
    return samples;
}

MetricSamples tokens_by_role(const JobRun& run) {
    const auto answered = run.progress.fetch.completed * run.micro_batch_tokens;
    return std::vector<MetricSample>{{{"student"}, number(run.progress.tokens)}, {{"teacher"}, number(answered)}};
}

MetricSamples busy_by_stage(const JobRun& run) {
    std::vector<MetricSample> samples;
    for (const auto& stage : run.progress.stages) {
        samples.push_back({{stage.stage}, stage.busy_seconds});
    }
    return samples;
}

MetricSamples waits_by_stage(const JobRun& run) {
    std::vector<MetricSample> samples;
    for (const auto& stage : run.progress.stages) {
        samples.push_back({{"input", stage.stage}, stage.wait_input_seconds});
        samples.push_back({{"output", stage.stage}, stage.wait_output_seconds});
    }
    return samples;
}

MetricSamples failures_by_kind(const JobRun& run) {
    std::vector<MetricSample> samples;
    for (const auto& [kind, count] : run.progress.fetch.failures) {
        samples.push_back({{kind}, number(count)});
    }
    return samples;
}

template <class Read>
MetricSamples by_endpoint(const JobRun& run, Read read) {
    std::map<LabelValues, double> values;  // a URL may be named twice
    for (const auto& one : run.progress.fetch.endpoints) {
        values[{one.endpoint}] += read(one);
    }
    return samples_of(values);
}

MetricSamples endpoints_in_flight(const JobRun& run) {
    return by_endpoint(run, [](const EndpointCounters& one) { return number(one.in_flight); });
}

MetricSamples endpoint_limits(const JobRun& run) {
    return by_endpoint(run, [](const EndpointCounters& one) { return number(one.limit); });
}

MetricSamples endpoints_open(const JobRun& run) {
    std::map<LabelValues, double> values;
    for (const auto& one : run.progress.fetch.endpoints) {
        double& open = values[{one.endpoint}];
        open = one.open ? 1.0 : open;
    }
    return samples_of(values);
}

/// What a worker counted; nothing when it has none yet, or has other bounds.
std::optional<Histogram> histogram_of(const DurationCounts& seconds) {
    if (seconds.counts.size() != kRunDurationBounds.size() + 1 || !std::isfinite(seconds.sum_seconds)) {
        return std::nullopt;
    }
    return Histogram(kRunDurationBounds, seconds.counts, seconds.sum_seconds);
}

MetricSamples step_durations(const JobRun& run) {
    const auto steps = histogram_of(run.progress.durations.steps);
    return steps ? std::vector<MetricSample>{{{}, *steps}} : std::vector<MetricSample>();
}

MetricSamples request_durations(const JobRun& run) {
    std::map<LabelValues, Histogram> sums;  // a URL may be named twice
    for (const auto& one : run.progress.durations.requests) {
        if (const auto seconds = histogram_of(one.seconds)) {
            const auto [sum, is_new] = sums.try_emplace({one.endpoint, one.outcome}, *seconds);
            if (!is_new) {
                sum->second.add(*seconds);
            }
        }
    }
    return samples_of(sums);
}

/// Seconds of teacher work that the student did not wait for.
double hidden_seconds(const JobRun& run) {
    for (const auto& stage : run.progress.stages) {
        if (stage.stage == stage_name(Stage::teacher)) {
            const double hidden = stage.busy_seconds * run.progress.teacher_hidden_fraction;
            return std::isfinite(hidden) ? hidden : 0.0;
        }
    }
    return 0.0;
}

std::vector<MetricRow<JobRun>> run_gauges() {
    return {
        {"distilld_job_loss",
         "Loss of the newest step of an active job, in nats a token.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return run.progress.loss; }},
        {"distilld_job_tokens_per_second",
         "Input positions an active job trains on in a second.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return run.progress.tokens_per_second; }},
        {"distilld_job_step",
         "Optimizer steps an active job has done.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return number(run.progress.step); }},
        {"distilld_job_stall_ratio",
         "Share of the run's time that the student waited for input.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return run.progress.stall_fraction; }},
        {"distilld_job_teacher_in_flight",
         "Teacher requests under way.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return number(run.progress.fetch.in_flight); }},
        {"distilld_job_teacher_concurrency_limit",
         "Teacher requests that may be under way at once.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return number(run.progress.fetch.concurrency); }},
        {"distilld_job_teacher_open_endpoints",
         "Teacher endpoints that get nothing but a probe now and then, because they failed.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return number(run.progress.fetch.open_endpoints); }},
        {"distilld_job_prefetch_window_items",
         "Micro-batches that may be asked for and not yet trained on.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return number(run.progress.fetch.window); }},
        {"distilld_job_prefetch_buffer_items",
         "Micro-batches answered by the teacher and not yet trained on.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return number(run.progress.fetch.buffered); }},
        {"distilld_teacher_endpoint_in_flight",
         "Requests of an active job under way to one endpoint.",
         gauge,
         {"endpoint", "job_id"},
         endpoints_in_flight},
        {"distilld_teacher_endpoint_limit",
         "Requests of an active job that one endpoint may get at a time.",
         gauge,
         {"endpoint", "job_id"},
         endpoint_limits},
        {"distilld_teacher_endpoint_open",
         "1 while an endpoint gets nothing but a probe now and then, because it failed.",
         gauge,
         {"endpoint", "job_id"},
         endpoints_open},
    };
}

std::vector<MetricRow<JobRun>> run_histograms() {
    return {
        {"distilld_step_duration_seconds",
         "Time from the end of one optimizer step to the end of the next.",
         histogram,
         {"job_id"},
         step_durations},
        {"distilld_teacher_request_duration_seconds",
         "Time from sending a request to a teacher to its answer's last byte, by what came of it.",
         histogram,
         {"endpoint", "job_id", "outcome"},
         request_durations},
    };
}

std::vector<MetricRow<JobRun>> run_counters() {
    return {
        {"distilld_steps_total",
         "Optimizer steps done by all jobs.",
         counter,
         {},
         [](const JobRun& run) { return number(run.progress.step) - number(run.first_step); }},
        {"distilld_tokens_total",
         "Input positions: trained on by students, answered for by teachers.",
         counter,
         {"role"},
         tokens_by_role},
        {"distilld_nonfinite_steps_total",
         "Steps skipped because a gradient was not finite.",
         counter,
         {},
         [](const JobRun& run) { return number(run.progress.nonfinite_steps); }},
        {"distilld_stage_busy_seconds_total", "Time a stage spent at work.", counter, {"stage"}, busy_by_stage},
        {"distilld_stage_wait_seconds_total",
         "Time a stage waited for its input, or for room at its output.",
         counter,
         {"reason", "stage"},
         waits_by_stage},
        {"distilld_overlap_seconds_total",
         "Teacher time during which the student did not wait.",
         counter,
         {},
         hidden_seconds},
        {"distilld_teacher_requests_total",
         "Requests sent to teachers, retries and hedges included.",
         counter,
         {},
         [](const JobRun& run) { return number(run.progress.fetch.requests); }},
        {"distilld_teacher_retries_total",
         "Requests sent again after a failure.",
         counter,
         {},
         [](const JobRun& run) { return number(run.progress.fetch.retries); }},
        {"distilld_teacher_hedges_total",
         "Second requests for answers that were slow.",
         counter,
         {},
         [](const JobRun& run) { return number(run.progress.fetch.hedges); }},
        {"distilld_teacher_received_bytes_total",
         "Bytes of teacher answers.",
         counter,
         {},
         [](const JobRun& run) { return number(run.progress.fetch.bytes_received); }},
        {"distilld_teacher_breaker_openings_total",
         "Times that a teacher endpoint was left out because it failed.",
         counter,
         {},
         [](const JobRun& run) { return number(run.progress.fetch.breaker_openings); }},
        {"distilld_teacher_failures_total",
         "Requests to teachers that failed, by kind.",
         counter,
         {"kind"},
         failures_by_kind},
    };
}

std::vector<MetricRow<ServiceCounts>> service_rows() {
    return {
        {"distilld_jobs", "Jobs in the store, by state.", gauge, {"state"}, jobs_by_state},
        {"distilld_jobs_finished_total",
         "Jobs that came to an end since the service started, by result.",
         counter,
         {"result"},
         finished_by_result},
        {"distilld_jobs_waiting",
         "Jobs that wait for something to pass: a teacher, space on the disk, a worker's restart.",
         gauge,
         {"reason"},
         waiting_by_reason},
        {"distilld_worker_restarts_total",
         "Workers that died and were started again.",
         counter,
         {},
         [](const ServiceCounts& counts) { return number(counts.worker_restarts); }},
        {"distilld_store_writable",
         "1 while the job store can be written, 0 while it cannot (a full disk).",
         gauge,
         {},
         [](const ServiceCounts& counts) { return counts.store_writable ? 1.0 : 0.0; }},
        {"distilld_store_unsaved_events",
         "Events of jobs that wait in memory for the job store to be writable.",
         gauge,
         {},
         [](const ServiceCounts& counts) { return number(counts.unsaved_events); }},
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
    return {run_gauges(), run_histograms(), run_counters(), service_rows(), process_metric_rows()};
}

}  // namespace distilld
