#include "server/jobs/metrics/metric_series.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/json_fields.hpp"
#include "pipeline/core/event_fields.hpp"

namespace distilld {

namespace json = boost::json;

namespace {

constexpr const char* kStep = "step";
constexpr const char* kEvalPrefix = "eval_";

struct SeriesSource {
    std::string name;
    std::string member;
    api::EventType type = api::EventType::metrics;
    bool may_be_missing = false;
};

template <class T>
inline constexpr bool kIsNumber = std::is_arithmetic_v<T> && !std::is_same_v<T, bool>;

/// Takes the numbers among an event's fields.
struct NumberCollector {
    std::vector<SeriesSource>& sources;
    api::EventType type;
    std::string prefix;

    template <class T>
    void operator()(const char* name, const T&) {
        if constexpr (kIsNumber<T>) {
            add(name, false);
        }
    }
    template <class T>
    void operator()(const char* name, const std::optional<T>&) {
        if constexpr (kIsNumber<T>) {
            add(name, true);
        }
    }
    void add(const std::string& name, bool may_be_missing) const {
        if (name != kStep) {
            sources.push_back({prefix + name, name, type, may_be_missing});
        }
    }
};

std::vector<SeriesSource> make_sources() {
    std::vector<SeriesSource> sources;
    NumberCollector of_progress{sources, api::EventType::metrics, ""};
    const ProgressEvent progress;
    describe(of_progress, progress);
    NumberCollector of_evaluation{sources, api::EventType::evaluation, kEvalPrefix};
    const EvaluationEvent evaluation;
    describe(of_evaluation, evaluation);
    return sources;
}

const std::vector<SeriesSource>& sources() {
    static const auto kSources = make_sources();
    return kSources;
}

/// Fields about a student in a progress event of a generate job, which has none.
bool is_of_student(const std::string& member) {
    static constexpr std::array kOfStudent{"loss",           "kd_loss",         "ce_loss",
                                           "grad_norm",      "learning_rate",   "stall_fraction",
                                           "padding_tokens", "nonfinite_steps", "teacher_hidden_fraction"};
    return std::ranges::find(kOfStudent, member) != kOfStudent.end();
}

bool generates(const api::JobEvent& event) {
    const auto* told = event.data.if_contains("generates");
    return told != nullptr && told->is_bool() && told->get_bool();
}

/// nullopt: it is not a whole number.
std::optional<std::uint64_t> step_of(const boost::json::object& data) {
    const auto* step = data.if_contains(kStep);
    boost::system::error_code ec;
    const auto number = step == nullptr ? 0 : step->to_number<std::uint64_t>(ec);
    return step == nullptr || ec ? std::nullopt : std::optional(number);
}

bool less(const SeriesPoint& a, const SeriesPoint& b) {
    return std::isnan(b.value) ? !std::isnan(a.value) : a.value < b.value;
}

}  // namespace

const std::vector<std::string>& series_names() {
    static const auto kNames = [] {
        std::vector<std::string> names;
        for (const auto& source : sources()) {
            names.push_back(source.name);
        }
        return names;
    }();
    return kNames;
}

std::vector<SeriesPoint> thinned(std::vector<SeriesPoint> points, std::uint32_t max_points) {
    if (points.size() <= max_points) {
        return points;
    }
    std::vector<SeriesPoint> kept{points.front()};
    const std::size_t inner = points.size() - 2;
    const std::size_t parts = (max_points - 2) / 2;
    for (std::size_t part = 0; part < parts; ++part) {
        const auto first = points.begin() + 1 + static_cast<std::ptrdiff_t>(part * inner / parts);
        const auto last = points.begin() + 1 + static_cast<std::ptrdiff_t>((part + 1) * inner / parts);
        auto [low, high] = std::minmax_element(first, last, less);
        if (high < low) {
            std::swap(low, high);
        }
        kept.push_back(*low);
        if (high != low) {
            kept.push_back(*high);
        }
    }
    kept.push_back(points.back());
    return kept;
}

SeriesCollector::SeriesCollector(SeriesQuery query) : query_(std::move(query)) {
    for (const auto& name : query_.names) {
        const auto source =
            std::find_if(sources().begin(), sources().end(), [&](const auto& it) { return it.name == name; });
        if (source != sources().end()) {
            wanted_.push_back({source->member, source->type, source->may_be_missing, {name, 0, {}}});
        } else if (name.starts_with(kFigurePrefix)) {
            wanted_.push_back({name.substr(kFigurePrefix.size()), api::EventType::figures, true, {name, 0, {}}});
        }
    }
}

/// Begins the series of figures that have none.
void SeriesCollector::add_figures(const json::object& figures) {
    for (const auto& [key, value] : figures) {
        const std::string_view name(key);
        const auto is_same = [name](const Wanted& it) {
            return it.type == api::EventType::figures && it.member == name;
        };
        if (figures_added_ < kMaxFigureSeries && std::ranges::none_of(wanted_, is_same)) {
            ++figures_added_;
            wanted_.push_back({std::string(name),
                               api::EventType::figures,
                               true,
                               {std::string(kFigurePrefix) + std::string(name), 0, {}}});
        }
    }
}

void SeriesCollector::add(const api::JobEvent& event) {
    const auto step = step_of(event.data);
    if (!step) {
        return;
    }
    const bool without_student = generates(event);
    const auto* figures = event.type == api::EventType::figures ? event.data.if_contains("figures") : nullptr;
    const json::object& data = figures != nullptr && figures->is_object() ? figures->get_object() : event.data;
    if (figures != nullptr && query_.all_figures) {
        add_figures(data);
    }
    for (auto& wanted : wanted_) {
        if (wanted.type != event.type || (without_student && is_of_student(wanted.member))) {
            continue;
        }
        auto& points = wanted.series.points;
        while (!points.empty() && points.back().step >= *step) {
            points.pop_back();
        }
        const auto* value = data.if_contains(wanted.member);
        const bool there = value != nullptr && (value->is_number() || (value->is_null() && !wanted.may_be_missing));
        if (there && (!query_.after_step || *step > *query_.after_step)) {
            const double number =
                value->is_null() ? std::numeric_limits<double>::quiet_NaN() : value->to_number<double>();
            points.push_back({*step, number});
        }
    }
}

std::vector<MetricSeries> SeriesCollector::take() {
    std::vector<MetricSeries> result;
    for (auto& wanted : wanted_) {
        auto& series = result.emplace_back(std::move(wanted.series));
        series.total_points = series.points.size();
        series.points = thinned(std::move(series.points), query_.max_points);
    }
    return result;
}

}  // namespace distilld
