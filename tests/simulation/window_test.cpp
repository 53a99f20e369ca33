// How far the requests run ahead of the student: in micro-batches and in bytes.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "bench/virtual_pipeline.hpp"
#include "tests/simulation/virtual_run.hpp"

namespace distilld::bench {
namespace {

using namespace std::chrono_literals;

TEST(PrefetchWindow, ByDefaultGrowsWithTheJitterUntilItCostsNothing) {
    constexpr std::uint64_t kBatches = 4000;
    constexpr Nanos kStudent = 50ms;
    for (const std::uint32_t concurrency : {4U, 8U, 16U}) {
        const Nanos mean = scaled(kStudent, 0.8 * concurrency);
        double of_bound = 0;
        double of_oracle = 0;
        for (std::uint64_t seed = 1; seed <= 5; ++seed) {
            const std::vector<Nanos> latencies = lognormal_latencies(kBatches, mean, 1.0, seed);
            const VirtualRun run = run_virtual(options_of(concurrency, kBatches), kStudent, from_list(latencies));
            const Nanos oracle = oracle_makespan(latencies, concurrency, kStudent);
            of_bound += to_seconds(kBatches * kStudent + mean) / to_seconds(run.makespan) / 5;
            of_oracle += to_seconds(oracle) / to_seconds(run.makespan) / 5;
            EXPECT_LE(run.window, 64 * concurrency);
        }
        EXPECT_GE(of_oracle, 0.97) << "C " << concurrency;
        EXPECT_GE(of_bound, concurrency <= 8 ? 0.97 : 0.95) << "C " << concurrency << ": even the oracle needs 0.02";
    }
}

TEST(PrefetchWindow, StaysSmallWhereNothingIsLateAndWhereTheStudentIs) {
    const std::vector<Nanos> even(2000, 200ms);
    EXPECT_EQ(run_virtual(options_of(8, 2000), 50ms, from_list(even)).window, 32U);
    EXPECT_EQ(run_virtual(options_of(8, 2000), 1s, from_list(even)).window, 32U);
    const std::vector<Nanos> jitter = lognormal_latencies(2000, 200ms, 1.0, 1);
    EXPECT_LE(run_virtual(options_of(8, 2000), 1s, from_list(jitter)).window, 64U) << "the first fill";
}

TEST(PrefetchWindow, ASizeThatWasAskedForIsKept) {
    SchedulerOptions options = options_of(8, 1000);
    options.window.size = 10;
    const std::vector<Nanos> latencies = lognormal_latencies(1000, 300ms, 1.0, 2);
    EXPECT_LE(run_virtual(options, 50ms, from_list(latencies)).max_unreleased, 10U);
}

TEST(PrefetchWindow, WireBytesAreCountedBeforeTheyAreAskedFor) {
    SchedulerOptions options = options_of(32, 100);
    options.window.max_bytes = 1000;
    options.window.expected = {10, 100};  // JSON: ten times what it holds
    PrefetchScheduler scheduler(options);
    std::vector<IssueAction> issued = only<IssueAction>(scheduler.poll(Instant()));
    EXPECT_EQ(issued.size(), 10U);
    scheduler.on_completed(issued[0].request, {10, 100}, Instant(1ms));
    EXPECT_TRUE(only<IssueAction>(scheduler.poll(Instant(1ms))).empty()) << "9 · 100 + 10, and another 100 is too much";
    scheduler.on_completed(issued[1].request, {10, 100}, Instant(2ms));
    EXPECT_EQ(only<IssueAction>(scheduler.poll(Instant(2ms))).size(), 1U) << "8 · 100 + 20 + 100";
}

TEST(PrefetchWindow, TheExpectationFollowsWhatCame) {
    SchedulerOptions options = options_of(32, 100);
    options.window.max_bytes = 1000;
    options.window.expected = {10, 10};
    PrefetchScheduler scheduler(options);
    const std::vector<IssueAction> issued = only<IssueAction>(scheduler.poll(Instant()));
    EXPECT_EQ(issued.size(), 32U);
    scheduler.on_completed(issued[0].request, {10, 500}, Instant(1ms));
    for (std::size_t i = 1; i + 1 < issued.size(); ++i) {
        scheduler.on_completed(issued[i].request, {10, 400}, Instant(2ms));
        if (i < 31) {
            EXPECT_TRUE(only<IssueAction>(scheduler.poll(Instant(2ms))).empty());
        }
    }
}

TEST(PrefetchWindow, WhatDecodingTakesBesideIsCountedForAsManyAsAreDecodedAtATime) {
    WindowOptions options;
    options.max_bytes = 1000;
    options.expected = {20, 100};
    options.decoders = 2;
    options.decode_bytes = 50;
    PrefetchWindow window(options);
    EXPECT_TRUE(window.has_bytes_for_another(8));   // nine on the wire, two of them being decoded
    EXPECT_FALSE(window.has_bytes_for_another(9));  // ten would take a thousand, and a hundred more
    window.on_answer({20, 100});
    EXPECT_TRUE(window.has_bytes_for_another(7));
    EXPECT_FALSE(window.has_bytes_for_another(8));
    options.decoders = 8;
    EXPECT_TRUE(PrefetchWindow(options).has_bytes_for_another(5)) << "no more are decoded than there are";
    EXPECT_FALSE(PrefetchWindow(options).has_bytes_for_another(6));
}

TEST(PrefetchWindow, AHedgeNeedsRoomLikeAnyRequest) {
    SchedulerOptions options = options_of(4, 1000);
    options.hedge.enabled = true;
    options.window.expected = {100, 100};
    const VirtualTeacher teacher = [](const IssueAction& request, std::uint32_t, Instant) {
        const bool stalls = request.micro_batch % 50 == 20 && !request.hedge;
        return VirtualAnswer{stalls ? Nanos(10s) : Nanos(200ms), {}, {}};
    };
    EXPECT_GT(run_virtual(options, 50ms, teacher, {100, 100}).counters.hedges, 0U);
    options.window.max_bytes = 100;
    const VirtualRun one = run_virtual(options, 50ms, teacher, {100, 100});
    EXPECT_EQ(one.taken.size(), 1000U);
    EXPECT_LE(one.max_in_flight, 2U);
}

TEST(PrefetchWindow, AdaptiveConcurrencyIsThereAfterOneLatency) {
    constexpr std::uint64_t kBatches = 2000;
    constexpr Nanos kStudent = 10ms;
    for (const Nanos latency : {Nanos(250ms), Nanos(500ms), Nanos(1s)}) {
        SchedulerOptions options = options_of(128, kBatches);
        options.limit.adaptive = true;
        const std::vector<Nanos> latencies(kBatches, latency);
        const VirtualRun run = run_virtual(options, kStudent, from_list(latencies));
        const double bound = to_seconds(kBatches * kStudent + latency);
        EXPECT_GE(bound / to_seconds(run.makespan), 0.95) << to_milliseconds(latency) << " ms";
    }
}

}  // namespace
}  // namespace distilld::bench
