#include "server/teacher/teacher_metrics.hpp"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "distilld_version.hpp"

namespace distilld::teacher {

namespace {

using Seconds = std::chrono::duration<double>;
using Buckets = prometheus::Histogram::BucketBoundaries;

const Buckets& duration_buckets() {
    static const Buckets buckets{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60};
    return buckets;
}

}  // namespace

struct TeacherMetrics::Families {
    prometheus::Registry registry;
    prometheus::Family<prometheus::Counter>& requests = prometheus::BuildCounter()
                                                            .Name("distilld_teacher_requests_total")
                                                            .Help("Scoring requests answered, by protocol and status.")
                                                            .Register(registry);
    prometheus::Family<prometheus::Histogram>& durations =
        prometheus::BuildHistogram()
            .Name("distilld_teacher_request_duration_seconds")
            .Help("Time from a scoring request's header to the end of its answer.")
            .Register(registry);
    prometheus::Counter& tokens = prometheus::BuildCounter()
                                      .Name("distilld_teacher_tokens_total")
                                      .Help("Input positions scored.")
                                      .Register(registry)
                                      .Add({});
    prometheus::Counter& compute = prometheus::BuildCounter()
                                       .Name("distilld_teacher_compute_seconds_total")
                                       .Help("Time the compute thread spent on requests.")
                                       .Register(registry)
                                       .Add({});
    prometheus::Counter& dropped = prometheus::BuildCounter()
                                       .Name("distilld_teacher_dropped_requests_total")
                                       .Help("Requests given up before they were computed.")
                                       .Register(registry)
                                       .Add({});
    prometheus::Histogram& batches = prometheus::BuildHistogram()
                                         .Name("distilld_teacher_batch_size")
                                         .Help("Requests that the compute thread took up at once.")
                                         .Register(registry)
                                         .Add({}, Buckets{1, 2, 4, 8, 16, 32, 64, 128});
    prometheus::Histogram& queue_wait = prometheus::BuildHistogram()
                                            .Name("distilld_teacher_queue_wait_seconds")
                                            .Help("Time a request waited for the compute thread.")
                                            .Register(registry)
                                            .Add({}, duration_buckets());
    prometheus::Gauge& waiting = prometheus::BuildGauge()
                                     .Name("distilld_teacher_queue_length")
                                     .Help("Requests waiting for the compute thread.")
                                     .Register(registry)
                                     .Add({});
    prometheus::Family<prometheus::Gauge>& info = prometheus::BuildGauge()
                                                      .Name("distilld_teacher_model_info")
                                                      .Help("1 once the model is loaded; labels say what it is.")
                                                      .Register(registry);
};

TeacherMetrics::TeacherMetrics() : families_(std::make_unique<Families>()) {}
TeacherMetrics::~TeacherMetrics() = default;

void TeacherMetrics::answered(std::string_view protocol, unsigned status, std::chrono::nanoseconds duration) {
    families_->requests.Add({{"protocol", std::string(protocol)}, {"code", std::to_string(status)}}).Increment();
    families_->durations.Add({{"protocol", std::string(protocol)}}, duration_buckets())
        .Observe(Seconds(duration).count());
}

void TeacherMetrics::batch(std::size_t requests) {
    families_->batches.Observe(static_cast<double>(requests));
}

void TeacherMetrics::computed(std::uint64_t tokens, std::chrono::nanoseconds queue_wait,
                              std::chrono::nanoseconds compute) {
    families_->tokens.Increment(static_cast<double>(tokens));
    families_->queue_wait.Observe(Seconds(queue_wait).count());
    families_->compute.Increment(Seconds(compute).count());
}

void TeacherMetrics::dropped() {
    families_->dropped.Increment();
}

void TeacherMetrics::set_waiting(std::size_t requests) {
    families_->waiting.Set(static_cast<double>(requests));
}

void TeacherMetrics::set_model(const models::ServedModel& model, const std::string& name) {
    families_->info.Add({{"model", name}, {"dtype", model.dtype}, {"device", model.device}, {"version", kVersion}})
        .Set(1);
}

std::string TeacherMetrics::text() const {
    return prometheus::TextSerializer().Serialize(families_->registry.Collect());
}

}  // namespace distilld::teacher
