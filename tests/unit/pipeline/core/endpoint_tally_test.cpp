#include "pipeline/core/scheduling/endpoint_tally.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace distilld {
namespace {

using namespace std::chrono_literals;

TEST(DurationCounts, CountsByUpperBound) {
    DurationCounts seconds;
    EXPECT_TRUE(seconds.counts.empty());
    seconds.observe(0);
    seconds.observe(kRunDurationBounds.front());
    seconds.observe(0.0011);
    seconds.observe(kRunDurationBounds.back());
    seconds.observe(kRunDurationBounds.back() + 1);
    ASSERT_EQ(seconds.counts.size(), kRunDurationBounds.size() + 1);
    EXPECT_EQ(seconds.counts.front(), 2U) << "one that is equal to a bound counts below it";
    EXPECT_EQ(seconds.counts[1], 1U);
    EXPECT_EQ(seconds.counts[kRunDurationBounds.size() - 1], 1U);
    EXPECT_EQ(seconds.counts.back(), 1U);
    EXPECT_DOUBLE_EQ(seconds.sum_seconds, 0.001 + 0.0011 + 300 + 301);
}

TEST(DurationCounts, BoundsAscend) {
    EXPECT_TRUE(std::is_sorted(kRunDurationBounds.begin(), kRunDurationBounds.end(), std::less_equal<>()));
}

TEST(EndpointTally, KeepsEndpointsAndOutcomesApart) {
    EndpointTally tally(2);
    tally.on_ended(0, std::nullopt, 200ms);
    tally.on_ended(0, std::nullopt, 300ms);
    tally.on_ended(0, FailureKind::timeout, 60s);
    tally.on_ended(0, FailureKind::connection, 1ms);
    tally.on_ended(0, FailureKind::cancelled, 2s);
    const std::map<std::string, std::uint64_t> expected{
        {"cancelled", 1}, {"connection", 1}, {"success", 2}, {"timeout", 1}};
    EXPECT_EQ(tally.outcomes(0), expected);
    EXPECT_TRUE(tally.outcomes(1).empty());
    EXPECT_TRUE(tally.durations(1, "b").empty());

    const auto durations = tally.durations(0, "a");
    std::map<std::string, double> sums;
    std::map<std::string, std::uint64_t> counts;
    for (const RequestDurations& one : durations) {
        EXPECT_EQ(one.endpoint, "a");
        sums[one.outcome] = one.seconds.sum_seconds;
        counts[one.outcome] = std::accumulate(one.seconds.counts.begin(), one.seconds.counts.end(), std::uint64_t{0});
    }
    EXPECT_EQ(counts, (std::map<std::string, std::uint64_t>{{"cancelled", 1}, {"failure", 2}, {"success", 2}}));
    EXPECT_DOUBLE_EQ(sums["success"], 0.5);
    EXPECT_DOUBLE_EQ(sums["failure"], 60.001);
    EXPECT_DOUBLE_EQ(sums["cancelled"], 2);
}

}  // namespace
}  // namespace distilld
