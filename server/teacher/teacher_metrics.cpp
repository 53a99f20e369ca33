#include "server/teacher/teacher_metrics.hpp"

#include <array>

namespace distilld::teacher {

namespace {

constexpr std::array kBatchBounds{1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0};

}  // namespace

TeacherCounts::TeacherCounts() : batches(kBatchBounds) {}

std::vector<MetricRow<TeacherCounts>> teacher_metric_rows() {
    using Row = MetricRow<TeacherCounts>;
    using enum MetricType;
    return {
        Row("distilld_teacher_server_requests_total", "Scoring requests answered, by protocol and status.", counter,
            {"code", "protocol"}, &TeacherCounts::requests),
        Row("distilld_teacher_server_request_duration_seconds",
            "Time from a scoring request's header to the end of its answer.", histogram, {"protocol"},
            &TeacherCounts::durations),
        Row("distilld_teacher_server_tokens_total", "Input positions, or samples of tensors, that were scored.",
            counter, &TeacherCounts::tokens),
        Row("distilld_teacher_server_compute_seconds_total", "Time the compute thread spent on requests.", counter,
            &TeacherCounts::compute_seconds),
        Row("distilld_teacher_server_dropped_requests_total", "Requests abandoned before they were computed.", counter,
            &TeacherCounts::dropped),
        Row("distilld_teacher_server_batch_size", "Requests that the compute thread took from the queue together.",
            histogram, &TeacherCounts::batches),
        Row("distilld_teacher_server_queue_wait_seconds", "Time a request waited for the compute thread.", histogram,
            &TeacherCounts::queue_waits),
        Row("distilld_teacher_server_queue_length", "Requests waiting for the compute thread.", gauge,
            &TeacherCounts::waiting),
        Row("distilld_teacher_server_prompt_tokens_total", "Tokens of the prompts of sequences that have begun.",
            counter, &TeacherCounts::prompt_tokens),
        Row("distilld_teacher_server_generated_tokens_total", "Tokens that were generated.", counter,
            &TeacherCounts::generated_tokens),
        Row("distilld_teacher_server_sequences_running", "Sequences that the model reads or writes.", gauge,
            &TeacherCounts::sequences_running),
        Row("distilld_teacher_server_sequences_waiting", "Sequences that wait for room (--max-sequences).", gauge,
            &TeacherCounts::sequences_waiting),
        Row("distilld_teacher_server_model_info", "1 once the model is loaded; labels say what it is.", gauge,
            {"device", "dtype", "model", "version"}, &TeacherCounts::models),
    };
}

TeacherMetrics::TeacherMetrics(std::vector<MetricRow<TeacherCounts>> rows) : rows_(std::move(rows)) {}

std::string TeacherMetrics::text() const {
    std::vector<MetricReading> readings;
    {
        const std::lock_guard lock(mutex_);
        read_rows(rows_, counts_, readings);
    }
    return metrics_text(readings);
}

}  // namespace distilld::teacher
