#include <functional>
#include <map>

#include "server/jobs/metrics/metric_row_parts.hpp"

namespace distilld {
namespace {

using enum MetricType;

MetricSamples failures_by_kind(const JobRun& run) {
    std::vector<MetricSample> samples;
    for (const auto& [kind, count] : run.progress.fetch.failures) {
        samples.push_back({{kind}, metric_number(count)});
    }
    return samples;
}

template <class Read>
MetricSamples by_endpoint(const JobRun& run, Read read) {
    std::map<LabelValues, double> values;  // a URL may be named twice
    for (const auto& one : run.progress.fetch.endpoints) {
        values[{one.endpoint}] += metric_number(std::invoke(read, one));
    }
    return samples_of(values);
}

/// For a job with several teachers.
template <class Read>
MetricSamples by_teacher(const JobRun& run, Read read) {
    std::map<LabelValues, double> values;
    for (const auto& one : run.progress.fetch.teachers) {
        values[{one.teacher}] = metric_number(std::invoke(read, one));
    }
    return samples_of(values);
}

MetricSamples endpoints_in_flight(const JobRun& run) {
    return by_endpoint(run, &EndpointCounters::in_flight);
}

MetricSamples endpoint_limits(const JobRun& run) {
    return by_endpoint(run, &EndpointCounters::limit);
}

MetricSamples endpoints_open(const JobRun& run) {
    std::map<LabelValues, double> values;
    for (const auto& one : run.progress.fetch.endpoints) {
        double& open = values[{one.endpoint}];
        open = one.open ? 1.0 : open;
    }
    return samples_of(values);
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

}  // namespace

std::vector<MetricRow<JobRun>> teacher_metric_rows() {
    return {
        {"distilld_job_teacher_in_flight",
         "Teacher requests in flight.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return metric_number(run.progress.fetch.in_flight); }},
        {"distilld_job_teacher_concurrency_limit",
         "Limit of teacher requests in flight.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return metric_number(run.progress.fetch.concurrency); }},
        {"distilld_job_teacher_open_endpoints",
         "Teacher endpoints with an open circuit breaker.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return metric_number(run.progress.fetch.open_endpoints); }},
        {"distilld_job_prefetch_window_items",
         "Micro-batches that may be asked for and not yet trained on.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return metric_number(run.progress.fetch.window); }},
        {"distilld_job_prefetch_buffer_items",
         "Micro-batches answered by the teacher and not yet trained on.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return metric_number(run.progress.fetch.buffered); }},
        {"distilld_job_decode_threads",
         "Threads that decode a job's teacher answers; its stage decode is busy while one of them is.",
         gauge,
         {"job_id"},
         [](const JobRun& run) { return metric_number(run.progress.fetch.decode_threads); }},
        {"distilld_teacher_endpoint_in_flight",
         "Requests of an active job in flight to one endpoint.",
         gauge,
         {"endpoint", "job_id"},
         endpoints_in_flight},
        {"distilld_teacher_endpoint_limit",
         "Limit of requests of an active job in flight to one endpoint.",
         gauge,
         {"endpoint", "job_id"},
         endpoint_limits},
        {"distilld_teacher_endpoint_open",
         "1 while the circuit breaker of an endpoint is open.",
         gauge,
         {"endpoint", "job_id"},
         endpoints_open},
        {"distilld_job_several_teachers_in_flight",
         "Requests in flight to one of an active job's several teachers.",
         gauge,
         {"job_id", "teacher"},
         [](const JobRun& run) { return by_teacher(run, &TeacherCounters::in_flight); }},
        {"distilld_job_several_teachers_buffer_items",
         "Micro-batches not yet trained on for which one of an active job's several teachers has given its rows.",
         gauge,
         {"job_id", "teacher"},
         [](const JobRun& run) { return by_teacher(run, &TeacherCounters::buffered); }},
        {"distilld_job_several_teachers_window_items",
         "Micro-batches that one of an active job's several teachers may be asked about and that are not trained on.",
         gauge,
         {"job_id", "teacher"},
         [](const JobRun& run) { return by_teacher(run, &TeacherCounters::window); }},
        {"distilld_teacher_request_duration_seconds",
         "Time from sending a request to a teacher to the last byte of its answer, by result.",
         histogram,
         {"endpoint", "job_id", "outcome"},
         request_durations},
        {"distilld_teacher_requests_total",
         "Requests sent to teachers, retries and hedges included.",
         counter,
         {},
         [](const JobRun& run) { return metric_number(run.progress.fetch.requests); }},
        {"distilld_teacher_retries_total",
         "Requests sent again after a failure.",
         counter,
         {},
         [](const JobRun& run) { return metric_number(run.progress.fetch.retries); }},
        {"distilld_teacher_hedges_total",
         "Second requests for answers that were slow.",
         counter,
         {},
         [](const JobRun& run) { return metric_number(run.progress.fetch.hedges); }},
        {"distilld_teacher_hedge_wins_total",
         "Second requests whose answer came first.",
         counter,
         {},
         [](const JobRun& run) { return metric_number(run.progress.fetch.hedge_wins); }},
        {"distilld_teacher_received_bytes_total",
         "Bytes of teacher answers.",
         counter,
         {},
         [](const JobRun& run) { return metric_number(run.progress.fetch.bytes_received); }},
        {"distilld_teacher_head_bytes_total",
         "Bytes of the heads that were fetched for teachers' hidden states; among the bytes of their answers.",
         counter,
         {},
         [](const JobRun& run) { return metric_number(run.progress.fetch.head.bytes); }},
        {"distilld_teacher_head_seconds_total",
         "Seconds that fetching and checking those heads took, before the first step.",
         counter,
         {},
         [](const JobRun& run) { return metric_number(run.progress.fetch.head.seconds); }},
        {"distilld_teacher_breaker_openings_total",
         "Times that the circuit breaker of a teacher endpoint opened.",
         counter,
         {},
         [](const JobRun& run) { return metric_number(run.progress.fetch.breaker_openings); }},
        {"distilld_teacher_failures_total",
         "Requests to teachers that failed, by kind.",
         counter,
         {"kind"},
         failures_by_kind},
        {"distilld_job_teacher_wait_seconds_total",
         "Time that the student of an active job waited while rows of one of its several teachers were missing.",
         counter,
         {"job_id", "teacher"},
         [](const JobRun& run) { return by_teacher(run, &TeacherCounters::wait_seconds); }},
        {"distilld_job_several_teachers_tokens_total",
         "Input positions that one of an active job's several teachers has answered for, unused answers among them.",
         counter,
         {"job_id", "teacher"},
         [](const JobRun& run) { return by_teacher(run, &TeacherCounters::tokens); }},
        {"distilld_job_several_teachers_failures_total",
         "Requests to one of an active job's several teachers that failed.",
         counter,
         {"job_id", "teacher"},
         [](const JobRun& run) { return by_teacher(run, &TeacherCounters::failures); }},
        {"distilld_teacher_endpoint_retries_total",
         "Requests of an active job sent to an endpoint after a failure, its own or another's.",
         counter,
         {"endpoint", "job_id"},
         [](const JobRun& run) { return by_endpoint(run, &EndpointCounters::retries); }},
        {"distilld_teacher_endpoint_hedges_total",
         "Second requests of an active job sent to an endpoint for answers that were slow.",
         counter,
         {"endpoint", "job_id"},
         [](const JobRun& run) { return by_endpoint(run, &EndpointCounters::hedges); }},
        {"distilld_teacher_endpoint_hedge_wins_total",
         "Second requests of an active job that an endpoint answered first.",
         counter,
         {"endpoint", "job_id"},
         [](const JobRun& run) { return by_endpoint(run, &EndpointCounters::hedge_wins); }},
        {"distilld_teacher_endpoint_breaker_openings_total",
         "Times that an active job opened the circuit breaker of an endpoint.",
         counter,
         {"endpoint", "job_id"},
         [](const JobRun& run) { return by_endpoint(run, &EndpointCounters::breaker_openings); }},
        {"distilld_teacher_endpoint_tokens_total",
         "Input positions that an endpoint has answered for, unused answers among them.",
         counter,
         {"endpoint", "job_id"},
         [](const JobRun& run) { return by_endpoint(run, &EndpointCounters::tokens); }},
        {"distilld_teacher_endpoint_sent_bytes_total",
         "Bytes of requests to an endpoint, over the wire.",
         counter,
         {"endpoint", "job_id"},
         [](const JobRun& run) { return by_endpoint(run, &EndpointCounters::bytes_sent); }},
        {"distilld_teacher_endpoint_received_bytes_total",
         "Bytes of answers of an endpoint, over the wire, unused and partial ones among them.",
         counter,
         {"endpoint", "job_id"},
         [](const JobRun& run) { return by_endpoint(run, &EndpointCounters::bytes_received); }},
    };
}

}  // namespace distilld
