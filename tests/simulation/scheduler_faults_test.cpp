// What the scheduler does with failures, event by event and in whole virtual runs.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <vector>

#include "bench/virtual_pipeline.hpp"
#include "tests/simulation/virtual_run.hpp"

namespace distilld::bench {
namespace {

using namespace std::chrono_literals;

TEST(SchedulerFaults, CompletionsOutOfOrderAreReleasedInOrder) {
    PrefetchScheduler scheduler(options_of(3, 3));
    const auto issued = only<IssueAction>(scheduler.poll(Instant()));
    ASSERT_EQ(issued.size(), 3U);
    scheduler.on_completed(issued[2].request, {1, 1}, Instant(10ns));
    EXPECT_TRUE(only<DeliverAction>(scheduler.poll(Instant(10ns))).empty());
    scheduler.on_completed(issued[0].request, {1, 1}, Instant(20ns));
    auto delivered = only<DeliverAction>(scheduler.poll(Instant(20ns)));
    ASSERT_EQ(delivered.size(), 1U);
    EXPECT_EQ(delivered[0].micro_batch, 0U);
    scheduler.on_completed(issued[1].request, {1, 1}, Instant(30ns));
    delivered = only<DeliverAction>(scheduler.poll(Instant(30ns)));
    ASSERT_EQ(delivered.size(), 2U);
    EXPECT_EQ(delivered[0].micro_batch, 1U);
    EXPECT_EQ(delivered[1].micro_batch, 2U);
}

TEST(SchedulerFaults, RejectionEndsTheJobAtOnce) {
    PrefetchScheduler scheduler(options_of(1, 3));
    const auto issued = only<IssueAction>(scheduler.poll(Instant()));
    scheduler.on_failed(issued[0].request, FailureKind::rejected, {}, Instant(5ns));
    const auto gave_up = only<GiveUpAction>(scheduler.poll(Instant(5ns)));
    ASSERT_EQ(gave_up.size(), 1U);
    EXPECT_EQ(gave_up[0].attempts, 1U);
}

TEST(SchedulerFaults, RetriesAreCountedAndEnd) {
    SchedulerOptions options = options_of(1, 1);
    options.retry.max_retries = 3;
    options.breaker.failures = 100;
    int calls = 0;
    const VirtualRun run = run_virtual(options, 1ms, [&calls](const IssueAction&, std::uint32_t, Instant) {
        ++calls;
        return VirtualAnswer{1ms, FailureKind::server_error, {}};
    });
    ASSERT_TRUE(run.gave_up.has_value());
    EXPECT_EQ(calls, 4);
    EXPECT_EQ(run.counters.retries, 3U);
    EXPECT_EQ(run.counters.failures.at(FailureKind::server_error), 4U);
}

TEST(SchedulerFaults, RetryAfterIsObeyed) {
    PrefetchScheduler scheduler(options_of(4, 8));
    const auto issued = only<IssueAction>(scheduler.poll(Instant()));
    scheduler.on_failed(issued[0].request, FailureKind::overloaded, 3s, Instant(1ms));
    EXPECT_TRUE(only<IssueAction>(scheduler.poll(Instant(1ms))).empty()) << "the endpoint asked for three seconds";
    const auto wakeup = scheduler.next_wakeup(Instant(1ms));
    if (wakeup) {
        EXPECT_GE(*wakeup, Instant(3s));
    }
    EXPECT_EQ(scheduler.limit(), 2U) << "overload halves the limit";
    scheduler.on_failed(issued[1].request, FailureKind::overloaded, {}, Instant(1ms));
    EXPECT_EQ(scheduler.limit(), 2U) << "requests issued before the last halving do not halve again";
}

TEST(SchedulerFaults, LimitRecoversAfterOverloadWhileTheStudentWaits) {
    int refused = 0;
    const VirtualTeacher teacher = [&refused](const IssueAction& request, std::uint32_t, Instant) {
        if (request.attempt == 0 && request.micro_batch >= 20 && request.micro_batch < 23) {
            ++refused;
            return VirtualAnswer{1ms, FailureKind::overloaded, {}};
        }
        return VirtualAnswer{400ms, {}, {}};
    };
    const VirtualRun run = run_virtual(options_of(8, 600), 50ms, teacher);
    EXPECT_EQ(refused, 3);
    EXPECT_EQ(run.taken.size(), 600U);
    std::uint32_t lowest = 8;
    for (const std::uint32_t limit : run.limit) {
        lowest = std::min(lowest, limit);
    }
    EXPECT_LT(lowest, 8U);
    EXPECT_GE(run.limit.back(), 7U) << "8 is what hides the teacher";
}

TEST(SchedulerFaults, BreakerStopsAskingADeadEndpointAndFindsItAgain) {
    SchedulerOptions options = options_of(8, 2000);
    options.endpoints = 2;
    options.retry.base = 10ms;
    std::uint64_t asked_while_dead = 0;
    std::uint64_t asked_after = 0;
    const VirtualTeacher teacher = [&](const IssueAction& request, std::uint32_t, Instant now) {
        if (request.endpoint == 1 && now >= Instant(5s) && now < Instant(30s)) {
            ++asked_while_dead;
            return VirtualAnswer{1ms, FailureKind::connection, {}};
        }
        if (request.endpoint == 1 && now >= Instant(60s)) {
            ++asked_after;
        }
        return VirtualAnswer{200ms, {}, {}};
    };
    const VirtualRun run = run_virtual(options, 50ms, teacher);
    EXPECT_FALSE(run.gave_up.has_value());
    EXPECT_EQ(run.taken.size(), 2000U);
    EXPECT_GE(run.counters.breaker_openings, 1U);
    EXPECT_LE(asked_while_dead, 20U);
    EXPECT_GE(asked_after, 100U);
}

TEST(SchedulerFaults, AllEndpointsDeadThenBackLosesNothing) {
    SchedulerOptions options = options_of(8, 400);
    const VirtualTeacher teacher = [](const IssueAction&, std::uint32_t, Instant now) {
        if (now >= Instant(5s) && now < Instant(35s)) {
            return VirtualAnswer{1ms, FailureKind::connection, {}};
        }
        return VirtualAnswer{200ms, {}, {}};
    };
    const VirtualRun run = run_virtual(options, 50ms, teacher);
    EXPECT_FALSE(run.gave_up.has_value());
    EXPECT_EQ(run.taken.size(), 400U);
}

TEST(SchedulerFaults, AnAbsentEndpointGetsProbesOnlyAndJoinsWhenItIsUp) {
    SchedulerOptions options = options_of(4, 1500);
    options.endpoints = 2;
    PrefetchScheduler scheduler(options);
    scheduler.on_endpoint_absent(1, Instant());
    // Answers come after 40 ms; endpoint 1 refuses connections for the first five seconds.
    std::map<Instant, std::vector<IssueAction>> due;
    std::vector<std::uint64_t> asked(2);
    std::uint64_t refused = 0;
    std::uint64_t delivered = 0;
    std::uint64_t taken = 0;
    for (Instant now; now < Instant(20s) && taken < 1500; now += 10ms) {
        for (const IssueAction& issue : due[now]) {
            if (issue.endpoint == 1 && now < Instant(5s)) {
                ++refused;
                scheduler.on_failed(issue.request, FailureKind::connection, {}, now);
            } else {
                scheduler.on_completed(issue.request, {1, 1}, now);
            }
        }
        for (const SchedulerAction& action : scheduler.poll(now)) {
            delivered += std::holds_alternative<DeliverAction>(action) ? 1 : 0;
            if (const auto* issue = std::get_if<IssueAction>(&action)) {
                if (now < Instant(5s)) {
                    EXPECT_FALSE(issue->endpoint == 1 && now < Instant(1s)) << "before the first cooldown is over";
                } else {
                    ++asked[issue->endpoint];
                }
                due[now + 40ms].push_back(*issue);
            }
        }
        if (delivered > taken) {  // the student takes one every 10 ms
            scheduler.on_taken(taken, now);
            scheduler.on_released(taken++, now);
        }
    }
    EXPECT_EQ(taken, 1500U);
    EXPECT_EQ(refused, 2U) << "after one second, and after two more";
    EXPECT_GT(asked[1], asked[0] / 2) << "as fast as the other";
    EXPECT_EQ(scheduler.counters().breaker_openings, 0U);
}

TEST(SchedulerFaults, TheSilenceOfADeadEndpointDoesNotSlowDownTheOthers) {
    SchedulerOptions options = options_of(4, 400);
    options.endpoints = 2;
    PrefetchScheduler scheduler(options);
    scheduler.on_endpoint_absent(1, Instant());
    std::vector<IssueAction> to_dead;
    for (Instant now; to_dead.empty() && now < Instant(5s); now += 100ms) {
        const std::vector<SchedulerAction> actions = scheduler.poll(now);
        for (const DeliverAction& deliver : only<DeliverAction>(actions)) {
            scheduler.on_taken(deliver.micro_batch, now);
            scheduler.on_released(deliver.micro_batch, now);
        }
        for (const IssueAction& issue : only<IssueAction>(actions)) {
            if (issue.endpoint == 1) {
                to_dead.push_back(issue);
            } else {
                scheduler.on_completed(issue.request, {1, 1}, now);
            }
        }
    }
    ASSERT_EQ(to_dead.size(), 1U);
    scheduler.on_failed(to_dead[0].request, FailureKind::timeout, {}, Instant(60s));
    EXPECT_EQ(scheduler.limit(), 4U);
}

TEST(SchedulerFaults, AHedgeThatWinsCancelsTheOther) {
    SchedulerOptions options = options_of(2, 100);
    options.hedge.enabled = true;
    PrefetchScheduler scheduler(options);
    Instant now;
    std::uint64_t taken = 0;
    RequestId slow = 0;
    // Feed quick answers until there are enough samples; then let one request hang.
    std::vector<IssueAction> open = only<IssueAction>(scheduler.poll(now));
    while (slow == 0) {
        now += 10ms;
        std::vector<IssueAction> next;
        for (const IssueAction& issue : open) {
            if (issue.micro_batch == 20) {
                slow = issue.request;
                continue;
            }
            scheduler.on_completed(issue.request, {1, 1}, now);
        }
        for (const SchedulerAction& action : scheduler.poll(now)) {
            if (const auto* issue = std::get_if<IssueAction>(&action)) {
                next.push_back(*issue);
            }
            if (std::holds_alternative<DeliverAction>(action)) {
                scheduler.on_taken(taken, now);
                scheduler.on_released(taken++, now);
            }
        }
        open = next;
    }
    now += 100ms;
    RequestId hedge = 0;
    for (const IssueAction& issue : open) {
        if (issue.hedge) {
            hedge = issue.request;
        }
        if (!issue.hedge && issue.request != slow) {
            scheduler.on_completed(issue.request, {1, 1}, now);
        }
    }
    if (hedge == 0) {
        for (const IssueAction& issue : only<IssueAction>(scheduler.poll(now))) {
            if (issue.hedge) {
                EXPECT_EQ(issue.micro_batch, 20U);
                hedge = issue.request;
            }
        }
    }
    ASSERT_NE(hedge, 0U);
    scheduler.on_completed(hedge, {1, 1}, now + 1ns);
    const auto cancelled = only<CancelAction>(scheduler.poll(now + 1ns));
    ASSERT_EQ(cancelled.size(), 1U);
    EXPECT_EQ(cancelled[0].request, slow);
    EXPECT_EQ(scheduler.counters().hedge_wins, 1U);
    const std::uint64_t completed = scheduler.counters().completed;
    scheduler.on_completed(slow, {1, 1}, now + 2ns);  // comes late all the same: no news
    EXPECT_EQ(scheduler.counters().completed, completed);
}

}  // namespace
}  // namespace distilld::bench
