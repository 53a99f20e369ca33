#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

/// Metrics as rows of tables. A row has a metric's name, help and the function that reads its value. A program keeps
/// plain counts, and each scrape reads its tables. To add a metric, add a row.
namespace distilld {

inline constexpr const char* kMetricsContentType = "text/plain; version=0.0.4; charset=utf-8";

enum class MetricType { counter, gauge, histogram };

/// Bounds in seconds, from a cached answer to one that waits for the disk or a queue.
inline constexpr std::array kDurationBounds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                            0.5,   1.0,    2.5,   5.0,  10.0,  30.0, 60.0};

/// A histogram.
class Histogram {
  public:
    /// `bounds` must ascend and outlive the histogram. A value equal to a bound counts below it.
    explicit Histogram(std::span<const double> bounds = kDurationBounds)
        : bounds_(bounds), counts_(bounds.size() + 1) {}

    /// From existing counts, one per bound and one above. Throws std::logic_error for another number of counts.
    Histogram(std::span<const double> bounds, std::vector<std::uint64_t> counts, double sum);

    void observe(double value);
    /// Adds another histogram with the same bounds.
    void add(const Histogram& other);

    [[nodiscard]] std::span<const double> bounds() const noexcept { return bounds_; }
    /// One count per bound, and one above; not cumulative.
    [[nodiscard]] std::span<const std::uint64_t> counts() const noexcept { return counts_; }
    [[nodiscard]] double sum() const noexcept { return sum_; }

  private:
    std::span<const double> bounds_;
    std::vector<std::uint64_t> counts_;
    double sum_ = 0;
};

using LabelValues = std::vector<std::string>;

template <class Number>
concept MetricNumber = std::is_arithmetic_v<Number>;

/// One line of a metric, or one set of buckets of a histogram.
struct MetricSample {
    MetricSample(LabelValues labels_in, std::variant<double, Histogram> value_in)
        : labels(std::move(labels_in)), value(std::move(value_in)) {}
    MetricSample(LabelValues labels_in, MetricNumber auto number)
        : labels(std::move(labels_in)), value(static_cast<double>(number)) {}

    LabelValues labels;  ///< one per label of the row, in its order
    std::variant<double, Histogram> value;
};

/// A map from label values, or from the value of the only label, to numbers or histograms, as samples.
template <class Map>
[[nodiscard]] std::vector<MetricSample> samples_of(const Map& values) {
    std::vector<MetricSample> samples;
    for (const auto& [labels, value] : values) {
        samples.emplace_back(LabelValues{labels}, value);
    }
    return samples;
}

/// The result of a row: one number, or one sample per set of labels. A metric without samples is omitted.
class MetricSamples {
  public:
    MetricSamples() = default;
    // Implicit: a row reads a plain number, histogram or map by a function that returns it, or by its member.
    MetricSamples(MetricNumber auto number) : samples_{{{}, number}} {}
    MetricSamples(Histogram value) : samples_{{{}, std::move(value)}} {}
    template <class Labels, class Value>
    MetricSamples(const std::map<Labels, Value>& values) : samples_(samples_of(values)) {}
    MetricSamples(std::vector<MetricSample> samples) : samples_(std::move(samples)) {}
    template <class Value>
    MetricSamples(std::optional<Value> value)
        : samples_(value ? MetricSamples(*std::move(value)).samples_ : Samples()) {}

    [[nodiscard]] std::vector<MetricSample> take() && { return std::move(samples_); }

  private:
    using Samples = std::vector<MetricSample>;
    Samples samples_;
};

template <class Source>
struct MetricRow {
    using Read = std::function<MetricSamples(const Source&)>;

    MetricRow(std::string name_in, std::string help_in, MetricType type_in, std::vector<std::string> labels_in,
              Read read_in)
        : name(std::move(name_in)),
          help(std::move(help_in)),
          type(type_in),
          labels(std::move(labels_in)),
          read(std::move(read_in)) {}
    /// Without labels.
    MetricRow(std::string name_in, std::string help_in, MetricType type_in, Read read_in)
        : MetricRow(std::move(name_in), std::move(help_in), type_in, {}, std::move(read_in)) {}

    std::string name;  ///< base units, plural, `_total` on counters
    std::string help;
    MetricType type;
    std::vector<std::string> labels;
    Read read;
};

/// A metric with its values.
struct MetricReading {
    std::string name;
    std::string help;
    MetricType type = MetricType::gauge;
    std::vector<std::string> labels;
    std::vector<MetricSample> samples;
};

template <class Source>
[[nodiscard]] MetricReading reading_of(const MetricRow<Source>& row, std::vector<MetricSample> samples) {
    return {row.name, row.help, row.type, row.labels, std::move(samples)};
}

/// Reads every row of a table.
template <class Source>
void read_rows(const std::vector<MetricRow<Source>>& rows, const Source& source, std::vector<MetricReading>& readings) {
    for (const auto& row : rows) {
        readings.push_back(reading_of(row, row.read(source).take()));
    }
}

/// Writes the text exposition format 0.0.4.
[[nodiscard]] std::string metrics_text(const std::vector<MetricReading>& readings);

}  // namespace distilld
