#include "pipeline/graph/progress_meter.hpp"

#include <algorithm>

namespace distilld {

namespace {

constexpr std::size_t kRecentSteps = 32;
constexpr double kNoticeableWait = 0.02;
constexpr double kNearlyAlways = 0.9;

}  // namespace

ProgressMeter::ProgressMeter(std::uint64_t first_step, std::uint64_t total_steps, Instant start)
    : total_steps_(total_steps), start_(start), newest_(start) {
    marks_.push_back({start, 0, first_step});
}

void ProgressMeter::on_step(std::uint64_t step, std::uint64_t tokens, std::uint64_t padding, Instant now, Nanos lost) {
    padding_ += padding;
    step_durations_.observe(to_seconds(now - newest_));
    newest_ = now;
    marks_.push_back({std::max(now - lost, marks_.back().at), marks_.back().tokens + tokens, step});
    if (marks_.size() > kRecentSteps + 1) {
        marks_.pop_front();
    }
}

void ProgressMeter::fill(ProgressEvent& event) const {
    const Mark& newest = marks_.back();
    const Mark& oldest = marks_.front();
    const double span = to_seconds(newest.at - oldest.at);
    event.tokens = newest.tokens;
    event.padding_tokens = padding_;
    event.total_steps = total_steps_;
    event.seconds_elapsed = to_seconds(newest_ - start_);
    event.tokens_per_second = span > 0 ? static_cast<double>(newest.tokens - oldest.tokens) / span : 0;
    const double per_step = newest.step > oldest.step ? span / static_cast<double>(newest.step - oldest.step) : 0;
    event.seconds_remaining = per_step * static_cast<double>(total_steps_ - std::min(total_steps_, newest.step));
    event.durations.steps = step_durations_;
}

void ProgressMeter::share_rate(ProgressEvent& event) {
    double all = 0;
    for (const RankCounters& rank : event.ranks) {
        all += static_cast<double>(rank.tokens);
    }
    for (RankCounters& rank : event.ranks) {
        rank.tokens_per_second = all > 0 ? event.tokens_per_second * static_cast<double>(rank.tokens) / all : 0;
    }
}

double ProgressMeter::mean_tokens_per_second() const {
    const double span = to_seconds(marks_.back().at - start_);
    return span > 0 ? static_cast<double>(marks_.back().tokens) / span : 0;
}

Stage ProgressMeter::bottleneck(const std::vector<StageTimes>& stages, double fill_seconds) {
    const auto place = [&stages](Stage stage) {
        return std::find_if(stages.begin(), stages.end(),
                            [stage](const StageTimes& s) { return s.stage == stage_name(stage); });
    };
    const auto find = [&](Stage stage) { return place(stage) == stages.end() ? StageTimes{} : *place(stage); };
    const StageTimes student = find(Stage::student);
    const double waited = student.wait_input_seconds - fill_seconds;
    if (waited <= kNoticeableWait * (student.busy_seconds + waited)) {
        return Stage::student;
    }
    // Among stages that are nearly always busy, the last one holds up the others.
    for (const Stage stage : {Stage::staging, Stage::decode}) {
        const StageTimes times = find(stage);
        const double total = times.busy_seconds + times.wait_input_seconds + times.wait_output_seconds;
        if (total > 0 && times.busy_seconds >= kNearlyAlways * total) {
            return stage;
        }
    }
    if (find(Stage::rollout).busy_seconds > find(Stage::teacher).busy_seconds) {
        return Stage::rollout;
    }
    return place(Stage::teacher) == stages.end() ? Stage::staging : Stage::teacher;
}

}  // namespace distilld
