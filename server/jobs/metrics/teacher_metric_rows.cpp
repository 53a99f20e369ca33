#include <functional>
#include <map>

#include "server/jobs/metrics/metric_row_parts.hpp"

namespace distilld {
namespace {

using enum MetricType;

template <class Value>
auto of_fetch(Value FetchCounters::* value) {
    return [value](const JobRun& run) { return MetricSamples(run.progress.fetch.*value); };
}

template <class Number>
auto by_endpoint(Number EndpointCounters::* value) {
    return [value](const JobRun& run) {
        std::map<LabelValues, Number> values;  // a URL may be named twice
        for (const auto& one : run.progress.fetch.endpoints) {
            values[{one.endpoint}] += one.*value;
        }
        return values;
    };
}

/// For a job with several teachers.
template <class Number>
auto by_teacher(Number TeacherCounters::* value) {
    return [value](const JobRun& run) {
        std::map<LabelValues, Number> values;
        for (const auto& one : run.progress.fetch.teachers) {
            values[{one.teacher}] = one.*value;
        }
        return values;
    };
}

/// 1 for a teacher with the student's tokenizer.
template <class Value>
auto of_alignment(Value value) {
    return [value](const JobRun& run) {
        const FetchCounters& fetch = run.progress.fetch;
        const bool has_teacher = !fetch.endpoints.empty();
        return fetch.alignment ? MetricSamples(value(*fetch.alignment))
               : has_teacher   ? MetricSamples(1.0)
                               : MetricSamples();
    };
}

template <class Value>
auto of_rollout(Value value) {
    return [value](const JobRun& run) {
        return run.progress.rollout ? MetricSamples(std::invoke(value, *run.progress.rollout)) : MetricSamples();
    };
}

double cut_share(const RolloutCounters& rollout) {
    return rollout.answers == 0 ? 0 : static_cast<double>(rollout.cut) / static_cast<double>(rollout.answers);
}

Histogram answer_lengths(const RolloutCounters& rollout) {
    return Histogram(kAnswerLengthBounds, counts_by_bound(rollout.lengths), static_cast<double>(rollout.tokens));
}

double aligned_share(const AlignmentCounters& alignment) {
    return alignment.positions == 0 ? 0
                                    : static_cast<double>(alignment.aligned) / static_cast<double>(alignment.positions);
}

MetricSamples endpoints_open(const JobRun& run) {
    std::map<LabelValues, bool> values;
    for (const auto& one : run.progress.fetch.endpoints) {
        bool& open = values[{one.endpoint}];
        open = open || one.open;
    }
    return values;
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
    return sums;
}

}  // namespace

std::vector<MetricRow<JobRun>> teacher_metric_rows() {
    using Row = MetricRow<JobRun>;
    return {
        Row("distilld_job_teacher_in_flight", "Teacher requests in flight.", gauge, {"job_id"},
            of_fetch(&FetchCounters::in_flight)),
        Row("distilld_job_teacher_concurrency_limit", "Limit of teacher requests in flight.", gauge, {"job_id"},
            of_fetch(&FetchCounters::concurrency)),
        Row("distilld_job_teacher_open_endpoints", "Teacher endpoints with an open circuit breaker.", gauge, {"job_id"},
            of_fetch(&FetchCounters::open_endpoints)),
        Row("distilld_job_prefetch_window_items", "Micro-batches that may be asked for and not yet trained on.", gauge,
            {"job_id"}, of_fetch(&FetchCounters::window)),
        Row("distilld_job_prefetch_buffer_items", "Micro-batches answered by the teacher and not yet trained on.",
            gauge, {"job_id"}, of_fetch(&FetchCounters::buffered)),
        Row("distilld_job_decode_threads",
            "Threads that decode a job's teacher answers; its stage decode is busy while one of them is.", gauge,
            {"job_id"}, of_fetch(&FetchCounters::decode_threads)),
        Row("distilld_job_teacher_aligned_ratio",
            "Share of the student's positions at which the teacher has read the same bytes; the others carry no loss. "
            "1 for a teacher with the student's tokenizer.",
            gauge, {"job_id"}, of_alignment(aligned_share)),
        Row("distilld_job_teacher_mapped_mass_ratio",
            "Share of the teacher's probability at those positions that is on named tokens of the student. 1 for a "
            "teacher with the student's tokenizer.",
            gauge, {"job_id"}, of_alignment([](const AlignmentCounters& counters) { return counters.mapped_mass; })),
        Row("distilld_job_rollout_answers_total", "Answers of an active job's student to prompts.", counter, {"job_id"},
            of_rollout(&RolloutCounters::answers)),
        Row("distilld_job_rollout_tokens_total", "Tokens of the answers of an active job's student.", counter,
            {"job_id"}, of_rollout(&RolloutCounters::tokens)),
        Row("distilld_job_rollout_cut_ratio", "Share of the answers that ended at rollout.max_tokens.", gauge,
            {"job_id"}, of_rollout(cut_share)),
        Row("distilld_job_rollout_mean_tokens", "Mean length of the answers, in tokens.", gauge, {"job_id"},
            of_rollout(&RolloutCounters::mean_length)),
        Row("distilld_job_rollout_entropy_nats", "Mean negative log-probability of the tokens that the student drew.",
            gauge, {"job_id"}, of_rollout(&RolloutCounters::entropy)),
        Row("distilld_job_rollout_answer_tokens", "Length of the answers, in tokens.", histogram, {"job_id"},
            of_rollout(answer_lengths)),
        Row("distilld_job_rollout_reverse_kl_nats",
            "Mean KL(student ‖ teacher) of the newest step at the tokens of the answers; only with training.beta 1 and "
            "temperature 1.",
            gauge, {"job_id"}, of_rollout(&RolloutCounters::reverse_kl)),
        Row("distilld_teacher_endpoint_in_flight", "Requests of an active job in flight to one endpoint.", gauge,
            {"endpoint", "job_id"}, by_endpoint(&EndpointCounters::in_flight)),
        Row("distilld_teacher_endpoint_limit", "Limit of requests of an active job in flight to one endpoint.", gauge,
            {"endpoint", "job_id"}, by_endpoint(&EndpointCounters::limit)),
        Row("distilld_teacher_endpoint_open", "1 while the circuit breaker of an endpoint is open.", gauge,
            {"endpoint", "job_id"}, endpoints_open),
        Row("distilld_job_several_teachers_in_flight", "Requests in flight to one of an active job's several teachers.",
            gauge, {"job_id", "teacher"}, by_teacher(&TeacherCounters::in_flight)),
        Row("distilld_job_several_teachers_buffer_items",
            "Micro-batches not yet trained on for which one of an active job's several teachers has given its rows.",
            gauge, {"job_id", "teacher"}, by_teacher(&TeacherCounters::buffered)),
        Row("distilld_job_several_teachers_window_items",
            "Micro-batches that one of an active job's several teachers may be asked about and that are not trained "
            "on.",
            gauge, {"job_id", "teacher"}, by_teacher(&TeacherCounters::window)),
        Row("distilld_teacher_request_duration_seconds",
            "Time from sending a request to a teacher to the last byte of its answer, by result.", histogram,
            {"endpoint", "job_id", "outcome"}, request_durations),
        Row("distilld_teacher_requests_total", "Requests sent to teachers, retries and hedges included.", counter,
            of_fetch(&FetchCounters::requests)),
        Row("distilld_teacher_retries_total", "Requests sent again after a failure.", counter,
            of_fetch(&FetchCounters::retries)),
        Row("distilld_teacher_hedges_total", "Second requests for answers that were slow.", counter,
            of_fetch(&FetchCounters::hedges)),
        Row("distilld_teacher_hedge_wins_total", "Second requests whose answer came first.", counter,
            of_fetch(&FetchCounters::hedge_wins)),
        Row("distilld_teacher_received_bytes_total", "Bytes of teacher answers.", counter,
            of_fetch(&FetchCounters::bytes_received)),
        Row("distilld_teacher_head_bytes_total",
            "Bytes of the heads that were fetched for teachers' hidden states; among the bytes of their answers.",
            counter, [](const JobRun& run) { return run.progress.fetch.head.bytes; }),
        Row("distilld_teacher_head_seconds_total",
            "Seconds that fetching and checking those heads took, before the first step.", counter,
            [](const JobRun& run) { return run.progress.fetch.head.seconds; }),
        Row("distilld_teacher_breaker_openings_total", "Times that the circuit breaker of a teacher endpoint opened.",
            counter, of_fetch(&FetchCounters::breaker_openings)),
        Row("distilld_teacher_failures_total", "Requests to teachers that failed, by kind.", counter, {"kind"},
            of_fetch(&FetchCounters::failures)),
        Row("distilld_job_teacher_wait_seconds_total",
            "Time that the student of an active job waited while rows of one of its several teachers were missing.",
            counter, {"job_id", "teacher"}, by_teacher(&TeacherCounters::wait_seconds)),
        Row("distilld_job_several_teachers_tokens_total",
            "Input positions, or samples of tensors, that one of an active job's several teachers has answered for, "
            "unused answers among them.",
            counter, {"job_id", "teacher"}, by_teacher(&TeacherCounters::tokens)),
        Row("distilld_job_several_teachers_failures_total",
            "Requests to one of an active job's several teachers that failed.", counter, {"job_id", "teacher"},
            by_teacher(&TeacherCounters::failures)),
        Row("distilld_teacher_endpoint_retries_total",
            "Requests of an active job sent to an endpoint after a failure, its own or another's.", counter,
            {"endpoint", "job_id"}, by_endpoint(&EndpointCounters::retries)),
        Row("distilld_teacher_endpoint_hedges_total",
            "Second requests of an active job sent to an endpoint for answers that were slow.", counter,
            {"endpoint", "job_id"}, by_endpoint(&EndpointCounters::hedges)),
        Row("distilld_teacher_endpoint_hedge_wins_total",
            "Second requests of an active job that an endpoint answered first.", counter, {"endpoint", "job_id"},
            by_endpoint(&EndpointCounters::hedge_wins)),
        Row("distilld_teacher_endpoint_breaker_openings_total",
            "Times that an active job opened the circuit breaker of an endpoint.", counter, {"endpoint", "job_id"},
            by_endpoint(&EndpointCounters::breaker_openings)),
        Row("distilld_teacher_endpoint_tokens_total",
            "Input positions, or samples of tensors, that an endpoint has answered for, unused answers among them.",
            counter, {"endpoint", "job_id"}, by_endpoint(&EndpointCounters::tokens)),
        Row("distilld_teacher_endpoint_sent_bytes_total", "Bytes of requests to an endpoint, over the wire.", counter,
            {"endpoint", "job_id"}, by_endpoint(&EndpointCounters::bytes_sent)),
        Row("distilld_teacher_endpoint_received_bytes_total",
            "Bytes of answers of an endpoint, over the wire, unused and partial ones among them.", counter,
            {"endpoint", "job_id"}, by_endpoint(&EndpointCounters::bytes_received)),
    };
}

}  // namespace distilld
