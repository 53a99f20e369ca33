#include "server/teacher/teacher_metrics.hpp"

#include <array>

#include "distilld_version.hpp"

namespace distilld::teacher {

namespace {

using Seconds = std::chrono::duration<double>;

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
        Row("distilld_teacher_server_tokens_total", "Input positions scored.", counter, &TeacherCounts::tokens),
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
        Row("distilld_teacher_server_model_info", "1 once the model is loaded; labels say what it is.", gauge,
            {"device", "dtype", "model", "version"}, &TeacherCounts::models),
    };
}

TeacherMetrics::TeacherMetrics(std::vector<MetricRow<TeacherCounts>> rows) : rows_(std::move(rows)) {}

void TeacherMetrics::answered(std::string_view protocol, unsigned status, std::chrono::nanoseconds duration) {
    const std::lock_guard lock(mutex_);
    ++counts_.requests[{std::to_string(status), std::string(protocol)}];
    counts_.durations[{std::string(protocol)}].observe(Seconds(duration).count());
}

void TeacherMetrics::batch(std::size_t requests) {
    const std::lock_guard lock(mutex_);
    counts_.batches.observe(static_cast<double>(requests));
}

void TeacherMetrics::computed(std::uint64_t tokens, std::chrono::nanoseconds queue_wait,
                              std::chrono::nanoseconds compute) {
    const std::lock_guard lock(mutex_);
    counts_.tokens += tokens;
    counts_.queue_waits.observe(Seconds(queue_wait).count());
    counts_.compute_seconds += Seconds(compute).count();
}

void TeacherMetrics::dropped() {
    const std::lock_guard lock(mutex_);
    ++counts_.dropped;
}

void TeacherMetrics::set_waiting(std::size_t requests) {
    const std::lock_guard lock(mutex_);
    counts_.waiting = requests;
}

void TeacherMetrics::set_model(const models::ServedModel& model, const std::string& name) {
    const std::lock_guard lock(mutex_);
    counts_.models[{model.device, model.dtype, name, kVersion}] = 1;
}

std::string TeacherMetrics::text() const {
    std::vector<MetricReading> readings;
    {
        const std::lock_guard lock(mutex_);
        read_rows(rows_, counts_, readings);
    }
    return metrics_text(readings);
}

}  // namespace distilld::teacher
