#include "server/support/metrics.hpp"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <stdexcept>

namespace distilld {
namespace {

prometheus::MetricType type_of(MetricType type) {
    switch (type) {
        case MetricType::counter:
            return prometheus::MetricType::Counter;
        case MetricType::gauge:
            return prometheus::MetricType::Gauge;
        case MetricType::histogram:
            return prometheus::MetricType::Histogram;
    }
    return prometheus::MetricType::Untyped;
}

prometheus::ClientMetric::Histogram buckets_of(const Histogram& histogram) {
    prometheus::ClientMetric::Histogram result;
    result.sample_sum = histogram.sum();
    for (std::size_t bucket = 0; bucket < histogram.counts().size(); ++bucket) {
        result.sample_count += histogram.counts()[bucket];
        const bool last = bucket == histogram.bounds().size();
        result.bucket.push_back(
            {result.sample_count, last ? std::numeric_limits<double>::infinity() : histogram.bounds()[bucket]});
    }
    return result;
}

prometheus::ClientMetric client_metric(const MetricReading& reading, const MetricSample& sample) {
    if (sample.labels.size() != reading.labels.size() ||
        std::holds_alternative<Histogram>(sample.value) != (reading.type == MetricType::histogram)) {
        throw std::logic_error("metric " + reading.name + ": a sample does not match its row");
    }
    prometheus::ClientMetric metric;
    for (std::size_t label = 0; label < sample.labels.size(); ++label) {
        if (!sample.labels[label].empty()) {  // Prometheus treats an empty label as absent
            metric.label.push_back({reading.labels[label], sample.labels[label]});
        }
    }
    if (const auto* histogram = std::get_if<Histogram>(&sample.value)) {
        metric.histogram = buckets_of(*histogram);
    } else if (reading.type == MetricType::counter) {
        metric.counter.value = std::get<double>(sample.value);
    } else {
        metric.gauge.value = std::get<double>(sample.value);
    }
    return metric;
}

}  // namespace

void Histogram::observe(double value) {
    const auto bucket = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
    ++counts_[static_cast<std::size_t>(bucket)];
    sum_ += value;
}

Histogram::Histogram(std::span<const double> bounds, std::vector<std::uint64_t> counts, double sum)
    : bounds_(bounds), counts_(std::move(counts)), sum_(sum) {
    if (counts_.size() != bounds_.size() + 1) {
        throw std::logic_error("a histogram has one count for each bound, and one above");
    }
}

void Histogram::add(const Histogram& other) {
    if (other.counts_.size() != counts_.size()) {
        throw std::logic_error("histograms of other bounds cannot be added");
    }
    std::transform(counts_.begin(), counts_.end(), other.counts_.begin(), counts_.begin(), std::plus<>());
    sum_ += other.sum_;
}

std::string metrics_text(const std::vector<MetricReading>& readings) {
    std::vector<prometheus::MetricFamily> families;
    for (const auto& reading : readings) {
        if (reading.samples.empty()) {
            continue;
        }
        prometheus::MetricFamily family{reading.name, reading.help, type_of(reading.type), {}};
        for (const auto& sample : reading.samples) {
            family.metric.push_back(client_metric(reading, sample));
        }
        families.push_back(std::move(family));
    }
    return prometheus::TextSerializer().Serialize(families);
}

}  // namespace distilld
