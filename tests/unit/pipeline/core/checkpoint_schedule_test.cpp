#include "pipeline/core/checkpoint_schedule.hpp"

#include <gtest/gtest.h>

namespace distilld {
namespace {

using namespace std::chrono_literals;

constexpr Instant kStart{Nanos(7'000)};

TEST(CheckpointSchedule, ADefaultSpecHasOneEveryTenMinutes) {
    CheckpointSchedule schedule(CheckpointSpec{}, kStart);
    EXPECT_FALSE(schedule.due(300, kStart + 599s));
    EXPECT_TRUE(schedule.due(300, kStart + 600s));
    schedule.on_begun();
    schedule.on_written(kStart + 620s);
    EXPECT_FALSE(schedule.due(301, kStart + 1219s)) << "counted from when it was on the disk";
    EXPECT_TRUE(schedule.due(301, kStart + 1220s));
}

TEST(CheckpointSchedule, ADiskSlowerThanTheIntervalDoesNotHoldTheTrainingUp) {
    CheckpointSchedule schedule(CheckpointSpec{}, kStart);
    schedule.on_begun();
    EXPECT_FALSE(schedule.due(5, kStart + 6000s));
}

TEST(CheckpointSchedule, StepsOrTimeWhicheverComesFirst) {
    CheckpointSpec spec;
    spec.every_steps = 100;
    CheckpointSchedule schedule(spec, kStart);
    EXPECT_TRUE(schedule.due(100, kStart + 1s));
    EXPECT_FALSE(schedule.due(101, kStart + 1s));
    EXPECT_TRUE(schedule.due(101, kStart + 600s));
}

TEST(CheckpointSchedule, NoughtTurnsEitherOff) {
    CheckpointSpec spec;
    spec.every_secs = 0;
    const CheckpointSchedule schedule(spec, kStart);
    EXPECT_FALSE(schedule.due(100, kStart + 100'000s));
}

}  // namespace
}  // namespace distilld
