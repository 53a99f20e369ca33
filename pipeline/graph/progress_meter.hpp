#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "base/time.hpp"
#include "pipeline/core/stage.hpp"
#include "pipeline/core/worker_events.hpp"

namespace distilld {

/// Rates and shares of a run for its progress events.
class ProgressMeter {
  public:
    ProgressMeter(std::uint64_t first_step, std::uint64_t total_steps, Instant start);

    /// An optimizer step ended at `now` after training on `tokens` input positions, plus `padding` positions. `lost`:
    /// time of the run so far that rates leave out.
    void on_step(std::uint64_t step, std::uint64_t tokens, std::uint64_t padding, Instant now, Nanos lost = {});

    /// Fills tokens, padding_tokens, tokens_per_second (over the last steps), seconds_elapsed, seconds_remaining and
    /// durations.steps.
    void fill(ProgressEvent& event) const;
    /// Divides the event's tokens_per_second over its ranks, by their tokens.
    static void share_rate(ProgressEvent& event);
    /// tokens_per_second over the whole run.
    [[nodiscard]] double mean_tokens_per_second() const;

    /// The stage that sets the pace. It is the student, unless that waited for more than 2% of its time, without
    /// `fill_seconds` (the wait for the first micro-batch, which nothing can hide). Then it is staging, if that was
    /// nearly always busy or there is no teacher; else the teacher.
    static Stage bottleneck(const std::vector<StageTimes>& stages, double fill_seconds);

  private:
    struct Mark {
        Instant at;  ///< minus what was lost before
        std::uint64_t tokens;
        std::uint64_t step;
    };

    std::uint64_t total_steps_;
    Instant start_;
    Instant newest_;
    std::deque<Mark> marks_;  // the last steps, oldest first
    std::uint64_t padding_ = 0;
    DurationCounts step_durations_;
};

}  // namespace distilld
