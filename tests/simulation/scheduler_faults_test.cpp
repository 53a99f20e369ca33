// What the scheduler does with failures, event by event and in whole virtual runs.
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <vector>

#include "bench/virtual_pipeline.hpp"

namespace distilld::bench {
namespace {

SchedulerOptions options_of(std::uint32_t concurrency, std::uint64_t batches) {
    SchedulerOptions options;
    options.end = batches;
    options.limit.ceiling = concurrency;
    options.hedge.enabled = false;
    return options;
}

template <class Action>
std::vector<Action> only(const std::vector<SchedulerAction>& actions) {
    std::vector<Action> found;
    for (const SchedulerAction& action : actions) {
        if (const auto* wanted = std::get_if<Action>(&action)) {
            found.push_back(*wanted);
        }
    }
    return found;
}

TEST(SchedulerFaults, CompletionsOutOfOrderAreReleasedInOrder) {
    PrefetchScheduler scheduler(options_of(3, 3));
    const auto issued = only<IssueAction>(scheduler.poll(0));
    ASSERT_EQ(issued.size(), 3U);
    scheduler.on_completed(issued[2].request, 1, 10);
    EXPECT_TRUE(only<DeliverAction>(scheduler.poll(10)).empty());
    scheduler.on_completed(issued[0].request, 1, 20);
    auto delivered = only<DeliverAction>(scheduler.poll(20));
    ASSERT_EQ(delivered.size(), 1U);
    EXPECT_EQ(delivered[0].micro_batch, 0U);
    scheduler.on_completed(issued[1].request, 1, 30);
    delivered = only<DeliverAction>(scheduler.poll(30));
    ASSERT_EQ(delivered.size(), 2U);
    EXPECT_EQ(delivered[0].micro_batch, 1U);
    EXPECT_EQ(delivered[1].micro_batch, 2U);
}

TEST(SchedulerFaults, RejectionEndsTheJobAtOnce) {
    PrefetchScheduler scheduler(options_of(1, 3));
    const auto issued = only<IssueAction>(scheduler.poll(0));
    scheduler.on_failed(issued[0].request, FailureKind::rejected, {}, 5);
    const auto gave_up = only<GiveUpAction>(scheduler.poll(5));
    ASSERT_EQ(gave_up.size(), 1U);
    EXPECT_EQ(gave_up[0].attempts, 1U);
}

TEST(SchedulerFaults, RetriesAreCountedAndEnd) {
    SchedulerOptions options = options_of(1, 1);
    options.retry.max_retries = 3;
    options.breaker.failures = 100;
    int calls = 0;
    const VirtualRun run = run_virtual(options, kMillisecond, [&calls](const IssueAction&, std::uint32_t, Nanos) {
        ++calls;
        return VirtualAnswer{kMillisecond, FailureKind::server_error, {}};
    });
    ASSERT_TRUE(run.gave_up.has_value());
    EXPECT_EQ(calls, 4);
    EXPECT_EQ(run.counters.retries, 3U);
    EXPECT_EQ(run.counters.failures.at(FailureKind::server_error), 4U);
}

TEST(SchedulerFaults, RetryAfterIsObeyed) {
    PrefetchScheduler scheduler(options_of(4, 8));
    const auto issued = only<IssueAction>(scheduler.poll(0));
    scheduler.on_failed(issued[0].request, FailureKind::overloaded, 3 * kSecond, kMillisecond);
    EXPECT_TRUE(only<IssueAction>(scheduler.poll(kMillisecond)).empty()) << "the endpoint asked for three seconds";
    const auto wakeup = scheduler.next_wakeup(kMillisecond);
    if (wakeup) {
        EXPECT_GE(*wakeup, 3 * kSecond);
    }
    EXPECT_EQ(scheduler.limit(), 2U) << "overload halves the limit";
    scheduler.on_failed(issued[1].request, FailureKind::overloaded, {}, kMillisecond);
    EXPECT_EQ(scheduler.limit(), 2U) << "requests issued before the last halving do not halve again";
}

TEST(SchedulerFaults, LimitRecoversAfterOverloadWhileTheStudentWaits) {
    int refused = 0;
    const VirtualTeacher teacher = [&refused](const IssueAction& request, std::uint32_t, Nanos) {
        if (request.attempt == 0 && request.micro_batch >= 20 && request.micro_batch < 23) {
            ++refused;
            return VirtualAnswer{kMillisecond, FailureKind::overloaded, {}};
        }
        return VirtualAnswer{400 * kMillisecond, {}, {}};
    };
    const VirtualRun run = run_virtual(options_of(8, 600), 50 * kMillisecond, teacher);
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
    options.retry.base = 10 * kMillisecond;
    std::uint64_t asked_while_dead = 0;
    std::uint64_t asked_after = 0;
    const VirtualTeacher teacher = [&](const IssueAction& request, std::uint32_t, Nanos now) {
        if (request.endpoint == 1 && now >= 5 * kSecond && now < 30 * kSecond) {
            ++asked_while_dead;
            return VirtualAnswer{kMillisecond, FailureKind::connection, {}};
        }
        if (request.endpoint == 1 && now >= 60 * kSecond) {
            ++asked_after;
        }
        return VirtualAnswer{200 * kMillisecond, {}, {}};
    };
    const VirtualRun run = run_virtual(options, 50 * kMillisecond, teacher);
    EXPECT_FALSE(run.gave_up.has_value());
    EXPECT_EQ(run.taken.size(), 2000U);
    EXPECT_GE(run.counters.breaker_openings, 1U);
    EXPECT_LE(asked_while_dead, 20U);
    EXPECT_GE(asked_after, 100U);
}

TEST(SchedulerFaults, AllEndpointsDeadThenBackLosesNothing) {
    SchedulerOptions options = options_of(8, 400);
    const VirtualTeacher teacher = [](const IssueAction&, std::uint32_t, Nanos now) {
        if (now >= 5 * kSecond && now < 35 * kSecond) {
            return VirtualAnswer{kMillisecond, FailureKind::connection, {}};
        }
        return VirtualAnswer{200 * kMillisecond, {}, {}};
    };
    const VirtualRun run = run_virtual(options, 50 * kMillisecond, teacher);
    EXPECT_FALSE(run.gave_up.has_value());
    EXPECT_EQ(run.taken.size(), 400U);
}

TEST(SchedulerFaults, AnAbsentEndpointGetsProbesOnlyAndJoinsWhenItIsUp) {
    SchedulerOptions options = options_of(4, 1500);
    options.endpoints = 2;
    PrefetchScheduler scheduler(options);
    scheduler.on_endpoint_absent(1, 0);
    // Answers come after 40 ms; endpoint 1 refuses connections for the first five seconds.
    std::map<Nanos, std::vector<IssueAction>> due;
    std::vector<std::uint64_t> asked(2);
    std::uint64_t refused = 0;
    std::uint64_t taken = 0;
    for (Nanos now = 0; now < 20 * kSecond && taken < 1500; now += 10 * kMillisecond) {
        for (const IssueAction& issue : due[now]) {
            if (issue.endpoint == 1 && now < 5 * kSecond) {
                ++refused;
                scheduler.on_failed(issue.request, FailureKind::connection, {}, now);
            } else {
                scheduler.on_completed(issue.request, 1, now);
            }
        }
        for (const SchedulerAction& action : scheduler.poll(now)) {
            if (const auto* issue = std::get_if<IssueAction>(&action)) {
                if (now < 5 * kSecond) {
                    EXPECT_FALSE(issue->endpoint == 1 && now < kSecond) << "before the first cooldown is over";
                } else {
                    ++asked[issue->endpoint];
                }
                due[now + 40 * kMillisecond].push_back(*issue);
            }
        }
        if (scheduler.buffered() > 0) {  // the student takes one every 10 ms
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
    scheduler.on_endpoint_absent(1, 0);
    std::vector<IssueAction> to_dead;
    for (Nanos now = 0; to_dead.empty() && now < 5 * kSecond; now += 100 * kMillisecond) {
        for (const IssueAction& issue : only<IssueAction>(scheduler.poll(now))) {
            if (issue.endpoint == 1) {
                to_dead.push_back(issue);
            } else {
                scheduler.on_completed(issue.request, 1, now);
                scheduler.on_taken(issue.micro_batch, now);
                scheduler.on_released(issue.micro_batch, now);
            }
        }
    }
    ASSERT_EQ(to_dead.size(), 1U);
    scheduler.on_failed(to_dead[0].request, FailureKind::timeout, {}, 60 * kSecond);
    EXPECT_EQ(scheduler.limit(), 4U);
}

TEST(SchedulerFaults, AHedgeThatWinsCancelsTheOther) {
    SchedulerOptions options = options_of(2, 100);
    options.hedge.enabled = true;
    PrefetchScheduler scheduler(options);
    Nanos now = 0;
    std::uint64_t taken = 0;
    RequestId slow = 0;
    // Feed quick answers until there are enough samples; then let one request hang.
    std::vector<IssueAction> open = only<IssueAction>(scheduler.poll(now));
    while (slow == 0) {
        now += 10 * kMillisecond;
        std::vector<IssueAction> next;
        for (const IssueAction& issue : open) {
            if (issue.micro_batch == 20) {
                slow = issue.request;
                continue;
            }
            scheduler.on_completed(issue.request, 1, now);
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
    now += 100 * kMillisecond;
    RequestId hedge = 0;
    for (const IssueAction& issue : open) {
        if (issue.hedge) {
            hedge = issue.request;
        }
        if (!issue.hedge && issue.request != slow) {
            scheduler.on_completed(issue.request, 1, now);
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
    scheduler.on_completed(hedge, 1, now + 1);
    const auto cancelled = only<CancelAction>(scheduler.poll(now + 1));
    ASSERT_EQ(cancelled.size(), 1U);
    EXPECT_EQ(cancelled[0].request, slow);
    EXPECT_EQ(scheduler.counters().hedge_wins, 1U);
    const std::uint64_t completed = scheduler.counters().completed;
    scheduler.on_completed(slow, 1, now + 2);  // comes late all the same: no news
    EXPECT_EQ(scheduler.counters().completed, completed);
}

}  // namespace
}  // namespace distilld::bench
