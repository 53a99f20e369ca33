#include "pipeline/graph/progress_meter.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace distilld {
namespace {

using namespace std::chrono_literals;

StageTimes times(Stage stage, double busy, double wait_input) {
    return {std::string(stage_name(stage)), busy, wait_input, 0};
}

TEST(ProgressMeter, TheBottleneckIsTheStageThatSetsThePace) {
    const StageTimes idle_staging = times(Stage::staging, 1, 9);
    const StageTimes full_staging = times(Stage::staging, 9.5, 0.5);
    const StageTimes waiting = times(Stage::student, 5, 5);
    EXPECT_EQ(ProgressMeter::bottleneck({idle_staging, times(Stage::student, 9.9, 0.1)}, 0), Stage::student);
    const StageTimes teacher = times(Stage::teacher, 5, 0);
    EXPECT_EQ(ProgressMeter::bottleneck({teacher, idle_staging, waiting}, 0), Stage::teacher);
    EXPECT_EQ(ProgressMeter::bottleneck({idle_staging, waiting}, 0), Stage::staging) << "there is no teacher";
    EXPECT_EQ(ProgressMeter::bottleneck({teacher, full_staging, waiting}, 0), Stage::staging);
    const StageTimes full_decode = times(Stage::decode, 9.5, 0.5);
    EXPECT_EQ(ProgressMeter::bottleneck({full_decode, idle_staging, waiting}, 0), Stage::decode);
    EXPECT_EQ(ProgressMeter::bottleneck({full_decode, full_staging, waiting}, 0), Stage::staging);
    EXPECT_EQ(ProgressMeter::bottleneck({teacher, times(Stage::decode, 1, 9), idle_staging, waiting}, 0),
              Stage::teacher);
    EXPECT_EQ(ProgressMeter::bottleneck({idle_staging, waiting}, 4.95), Stage::student) << "the fill cannot be hidden";
}

TEST(ProgressMeter, RatesAreOfTheLastStepsAndOfTheWholeRun) {
    const Instant start(7s);
    ProgressMeter meter(10, 110, start);
    // Slow at first, then 100 tokens in a tenth of a second.
    meter.on_step(11, 100, 7, start + 10s);
    Instant now = start + 10s;
    for (std::uint64_t step = 12; step <= 60; ++step) {
        now += 100ms;
        meter.on_step(step, 100, 1, now);
    }
    ProgressEvent event;
    meter.fill(event);
    EXPECT_EQ(event.tokens, 5000U);
    EXPECT_EQ(event.padding_tokens, 56U);
    EXPECT_EQ(event.total_steps, 110U);
    EXPECT_NEAR(event.tokens_per_second, 1000, 1e-6);
    EXPECT_NEAR(event.seconds_elapsed, 14.9, 1e-9);
    EXPECT_NEAR(event.seconds_remaining, 5.0, 1e-9);
    EXPECT_NEAR(meter.mean_tokens_per_second(), 5000 / 14.9, 1e-6);
    // Of all steps, not of the last: 49 in a tenth of a second, the first in ten.
    EXPECT_EQ(event.durations.steps.counts,
              (std::vector<std::uint64_t>{0, 0, 0, 0, 0, 0, 49, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0}));
    EXPECT_NEAR(event.durations.steps.sum_seconds, event.seconds_elapsed, 1e-9);
}

TEST(ProgressMeter, RatesLeaveOutWhatWasLost) {
    const Instant start(0s);
    ProgressMeter meter(0, 8, start);
    meter.on_step(1, 100, 0, start + 1s);
    meter.on_step(2, 100, 0, start + 23s, 21s);  // the teacher was away for most of it
    meter.on_step(3, 100, 0, start + 24s, 21s);
    ProgressEvent event;
    meter.fill(event);
    EXPECT_NEAR(event.tokens_per_second, 100, 1e-9);
    EXPECT_NEAR(event.seconds_remaining, 5, 1e-9);
    EXPECT_NEAR(meter.mean_tokens_per_second(), 100, 1e-9);
    EXPECT_NEAR(event.seconds_elapsed, 24, 1e-9) << "time has passed all the same";
    EXPECT_NEAR(event.durations.steps.sum_seconds, 24, 1e-9);
}

}  // namespace
}  // namespace distilld
