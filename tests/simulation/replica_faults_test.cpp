// One replica of several at fault: what it costs those that are well, and when it is asked again.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "bench/virtual_pipeline.hpp"
#include "tests/simulation/virtual_run.hpp"

namespace distilld::bench {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kBatches = 6000;
constexpr Nanos kLatency = 200ms;

struct Fault {
    std::string name;
    VirtualAnswer answer;
};

std::vector<Fault> faults() {
    return {{"503", {1ms, FailureKind::overloaded, {}}},
            {"503 after a while", {kLatency, FailureKind::overloaded, {}}},
            {"429 that asks for 5 s", {1ms, FailureKind::overloaded, 5s}},
            {"500", {1ms, FailureKind::server_error, {}}},
            {"reset", {50ms, FailureKind::connection, {}}},
            {"timeout", {60s, FailureKind::timeout, {}}},
            {"404", {1ms, FailureKind::not_found, {}}},
            {"401", {1ms, FailureKind::rejected, {}}},
            {"garbage", {kLatency, FailureKind::bad_response, {}}}};
}

SchedulerOptions default_options(std::uint32_t endpoints) {
    SchedulerOptions options;
    options.end = kBatches;
    options.endpoints = endpoints;
    return options;
}

TEST(ReplicaFaults, OneOfSeveralCostsTheOthersNextToNothing) {
    // The teacher is the bottleneck, then the student.
    for (const Nanos student : {Nanos(5ms), Nanos(26ms)}) {
        for (std::uint32_t endpoints = 2; endpoints <= 4; ++endpoints) {
            const std::vector<Nanos> latencies = lognormal_latencies(kBatches, kLatency, 0.2, endpoints);
            const VirtualTeacher healthy = [&](const IssueAction& request, std::uint32_t, Instant) {
                return VirtualAnswer{latencies[request.micro_batch], {}, {}};
            };
            const VirtualRun alone = run_virtual(default_options(endpoints - 1), student, healthy);
            for (const Fault& fault : faults()) {
                const VirtualTeacher teacher = [&](const IssueAction& request, std::uint32_t in_flight, Instant now) {
                    return request.endpoint == 0 ? fault.answer : healthy(request, in_flight, now);
                };
                const VirtualRun run = run_virtual(default_options(endpoints), student, teacher);
                EXPECT_FALSE(run.gave_up.has_value()) << fault.name << " of " << endpoints;
                EXPECT_EQ(run.taken.size(), kBatches) << fault.name << " of " << endpoints;
                EXPECT_GE(to_seconds(alone.makespan) / to_seconds(run.makespan), 0.95)
                    << fault.name << ", one of " << endpoints << ", student " << to_milliseconds(student) << " ms";
            }
        }
    }
}

TEST(ReplicaFaults, AReplicaThatBearsLittleIsGivenThatMuch) {
    // It refuses what is above four at once; its peer bears all. All eight slots are worth having.
    const auto run_with = [](std::uint32_t capacity) {
        std::uint32_t at_small = 0;
        std::uint64_t refused = 0;
        SchedulerOptions options = default_options(2);
        options.limit.ceiling = 16;
        PrefetchScheduler scheduler(options);
        struct Due {
            Instant at;
            IssueAction issue;
            bool refused;
        };
        std::vector<Due> due;
        std::uint64_t taken = 0;
        Instant now;
        for (; taken < 3000; now += 1ms) {
            for (std::size_t i = 0; i < due.size();) {
                if (due[i].at > now) {
                    ++i;
                    continue;
                }
                const Due ended = due[i];
                due.erase(due.begin() + static_cast<std::ptrdiff_t>(i));
                if (ended.refused) {
                    ++refused;
                    scheduler.on_failed(ended.issue.request, FailureKind::overloaded, {}, now);
                } else {
                    at_small -= ended.issue.endpoint == 0 ? 1 : 0;
                    scheduler.on_completed(ended.issue.request, {1, 1}, now);
                }
            }
            const std::vector<SchedulerAction> actions = scheduler.poll(now);
            for (const IssueAction& issue : only<IssueAction>(actions)) {
                const bool refuses = issue.endpoint == 0 && at_small >= capacity;
                at_small += issue.endpoint == 0 && !refuses ? 1 : 0;
                due.push_back({now + (refuses ? Nanos(1ms) : Nanos(100ms)), issue, refuses});
            }
            for (const DeliverAction& delivered : only<DeliverAction>(actions)) {
                scheduler.on_taken(delivered.micro_batch, now);
                scheduler.on_released(delivered.micro_batch, now);
                ++taken;
            }
        }
        EXPECT_LE(refused, 300U) << "one in ten at most";
        return to_seconds(now - Instant());
    };
    EXPECT_LE(run_with(4), 1.1 * run_with(16));
}

/// Endpoint 0 fails in `kind` until its breaker opens; the time at which it did.
Instant open_breaker(PrefetchScheduler& scheduler, FailureKind kind) {
    Instant now(1ms);
    for (int i = 0; i < 200 && scheduler.counters().breaker_openings == 0; ++i, now += 10ms) {
        for (const IssueAction& issue : only<IssueAction>(scheduler.poll(now))) {
            if (issue.endpoint == 0) {
                scheduler.on_failed(issue.request, kind, {}, now + 1ms);
            }
        }
    }
    return now;
}

TEST(ReplicaFaults, OverloadWithoutAnAnswerOpensAndAnOverloadedProbeOpensForLonger) {
    SchedulerOptions options = default_options(1);
    options.limit.ceiling = 4;
    PrefetchScheduler scheduler(options);
    Instant now = open_breaker(scheduler, FailureKind::overloaded);
    ASSERT_EQ(scheduler.counters().breaker_openings, 1U);
    std::vector<double> gaps;
    Instant last = now;
    for (; gaps.size() < 4 && now < Instant(60s); now += 10ms) {
        for (const IssueAction& issue : only<IssueAction>(scheduler.poll(now))) {
            gaps.push_back(to_seconds(now - last));
            last = now;
            scheduler.on_failed(issue.request, FailureKind::overloaded, {}, now);
        }
    }
    ASSERT_EQ(gaps.size(), 4U) << "one probe at a time";
    EXPECT_NEAR(gaps[0], 1, 0.05);
    EXPECT_NEAR(gaps[1], 2, 0.05);
    EXPECT_NEAR(gaps[2], 4, 0.05);
    EXPECT_NEAR(gaps[3], 8, 0.05);
}

TEST(ReplicaFaults, AStragglersResultIsNotTakenForTheProbes) {
    SchedulerOptions options = default_options(1);
    options.limit.ceiling = 8;
    PrefetchScheduler scheduler(options);
    std::vector<IssueAction> issued = only<IssueAction>(scheduler.poll(Instant(1ms)));
    ASSERT_EQ(issued.size(), 8U);
    for (int i = 0; i < 5; ++i) {
        scheduler.on_failed(issued[i].request, FailureKind::connection, {}, Instant(2ms));
    }
    ASSERT_EQ(scheduler.counters().breaker_openings, 1U);
    scheduler.on_completed(issued[5].request, {1, 1}, Instant(3ms));
    EXPECT_TRUE(only<IssueAction>(scheduler.poll(Instant(900ms))).empty()) << "it was issued before the failures";
    const std::vector<IssueAction> probe = only<IssueAction>(scheduler.poll(Instant(1100ms)));
    ASSERT_EQ(probe.size(), 1U);
    scheduler.on_failed(issued[6].request, FailureKind::timeout, {}, Instant(1200ms));
    EXPECT_TRUE(only<IssueAction>(scheduler.poll(Instant(1200ms))).empty()) << "the probe is still under way";
    scheduler.on_completed(probe[0].request, {1, 1}, Instant(1300ms));
    EXPECT_GE(only<IssueAction>(scheduler.poll(Instant(1300ms))).size(), 5U);
}

TEST(ReplicaFaults, AStragglersSuccessDoesNotClearTheHold) {
    SchedulerOptions options = default_options(1);
    options.limit.ceiling = 4;
    PrefetchScheduler scheduler(options);
    const std::vector<IssueAction> issued = only<IssueAction>(scheduler.poll(Instant(1ms)));
    scheduler.on_failed(issued[0].request, FailureKind::overloaded, 10s, Instant(2ms));
    scheduler.on_completed(issued[1].request, {1, 1}, Instant(3ms));
    EXPECT_TRUE(only<IssueAction>(scheduler.poll(Instant(9s))).empty());
    const std::vector<IssueAction> after = only<IssueAction>(scheduler.poll(Instant(10003ms)));
    ASSERT_FALSE(after.empty());
}

TEST(ReplicaFaults, RetryAfterIsObeyedUpToItsBoundAndByItsEndpointAlone) {
    SchedulerOptions options = default_options(2);
    options.limit.ceiling = 4;
    options.breaker.max_hold = 20s;
    options.end = 1U << 20U;
    PrefetchScheduler scheduler(options);
    const std::vector<IssueAction> issued = only<IssueAction>(scheduler.poll(Instant(1ms)));
    ASSERT_EQ(issued[0].endpoint, 0U);
    scheduler.on_failed(issued[0].request, FailureKind::overloaded, 1h, Instant(2ms));
    const std::vector<IssueAction> elsewhere = only<IssueAction>(scheduler.poll(Instant(2ms)));
    ASSERT_EQ(elsewhere.size(), 1U) << "its micro-batch does not wait for it";
    EXPECT_EQ(elsewhere[0].micro_batch, issued[0].micro_batch);
    EXPECT_EQ(elsewhere[0].endpoint, 1U);
    bool asked = false;
    Instant now(3ms);
    for (const IssueAction& issue : issued) {
        scheduler.on_completed(issue.request, {1, 1}, now);  // that of the first, which has ended, is ignored
    }
    scheduler.on_completed(elsewhere[0].request, {1, 1}, now);
    for (; now < Instant(30s) && !asked; now += 10ms) {
        const std::vector<SchedulerAction> actions = scheduler.poll(now);
        for (const IssueAction& issue : only<IssueAction>(actions)) {
            asked = asked || issue.endpoint == 0;
            scheduler.on_completed(issue.request, {1, 1}, now);
        }
        for (const DeliverAction& delivered : only<DeliverAction>(actions)) {
            scheduler.on_taken(delivered.micro_batch, now);
            scheduler.on_released(delivered.micro_batch, now);
        }
    }
    EXPECT_TRUE(asked);
    EXPECT_GE(now, Instant(20s));
    EXPECT_LE(now, Instant(21s));
}

TEST(ReplicaFaults, OnlyWhenEveryEndpointRejectsTheJobFails) {
    SchedulerOptions options = default_options(2);
    options.limit.ceiling = 2;
    PrefetchScheduler scheduler(options);
    std::vector<IssueAction> issued = only<IssueAction>(scheduler.poll(Instant(1ms)));
    ASSERT_EQ(issued.size(), 2U);
    scheduler.on_failed(issued[0].request, FailureKind::rejected, {}, Instant(2ms));
    std::vector<SchedulerAction> actions = scheduler.poll(Instant(2ms));
    EXPECT_TRUE(only<GiveUpAction>(actions).empty());
    const std::vector<IssueAction> again = only<IssueAction>(actions);
    ASSERT_EQ(again.size(), 1U);
    EXPECT_EQ(again[0].endpoint, issued[1].endpoint);
    EXPECT_EQ(scheduler.endpoints().open_count(), 1U);
    scheduler.on_failed(again[0].request, FailureKind::rejected, {}, Instant(3ms));
    EXPECT_EQ(only<GiveUpAction>(scheduler.poll(Instant(3ms))).size(), 1U);
}

TEST(ReplicaFaults, ARejectingReplicaIsProbedSeldomAndTakenBack) {
    SchedulerOptions options = default_options(2);
    std::uint64_t asked = 0;
    std::uint64_t asked_later = 0;
    const VirtualTeacher teacher = [&](const IssueAction& request, std::uint32_t, Instant now) {
        if (request.endpoint == 1 && now < Instant(40s)) {
            ++asked;
            return VirtualAnswer{1ms, FailureKind::rejected, {}};
        }
        asked_later += request.endpoint == 1 ? 1 : 0;
        return VirtualAnswer{kLatency, {}, {}};
    };
    const VirtualRun run = run_virtual(options, 26ms, teacher);
    EXPECT_FALSE(run.gave_up.has_value());
    EXPECT_LE(asked, 8U) << "those in flight at the beginning, and a probe every 15 s";
    EXPECT_GE(asked_later, 1000U);
}

}  // namespace
}  // namespace distilld::bench
