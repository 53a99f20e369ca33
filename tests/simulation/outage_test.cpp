// Faults of the surroundings at the default options: they cost time and never a job, until patience is over.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "bench/virtual_pipeline.hpp"
#include "tests/simulation/virtual_run.hpp"

namespace distilld::bench {
namespace {

using namespace std::chrono_literals;

SchedulerOptions default_options() {
    SchedulerOptions options;
    options.end = 2000;
    return options;
}

VirtualTeacher out_between(Instant from, Instant to, VirtualAnswer answer) {
    return [=](const IssueAction&, std::uint32_t, Instant now) {
        return now >= from && now < to ? answer : VirtualAnswer{200ms, {}, {}};
    };
}

TEST(Outage, OfWhateverKindIsWaitedOutAndOverSoonAfter) {
    const std::vector<VirtualAnswer> kinds{{1ms, FailureKind::overloaded, {}},
                                           {1ms, FailureKind::overloaded, 2s},
                                           {1ms, FailureKind::connection, {}},
                                           {60s, FailureKind::timeout, {}}};
    for (const VirtualAnswer& kind : kinds) {
        for (const Nanos length : {Nanos(17s), Nanos(121s), Nanos(25min)}) {
            const VirtualRun plain = run_virtual(default_options(), 50ms, out_between({}, {}, {}));
            const VirtualRun run =
                run_virtual(default_options(), 50ms, out_between(Instant(5s), Instant(5s) + length, kind));
            EXPECT_FALSE(run.gave_up.has_value()) << to_string(*kind.failure);
            EXPECT_EQ(run.taken.size(), 2000U);
            // A time-out that begins at the end of the outage lasts a minute; a probe comes every 15 s at least.
            EXPECT_LE(run.makespan, plain.makespan + length + kind.latency + 20s) << to_string(*kind.failure);
        }
    }
}

TEST(Outage, EndsTheJobWhenPatienceIsOver) {
    SchedulerOptions options = default_options();
    options.retry.outage_timeout = 600s;
    const VirtualRun run =
        run_virtual(options, 50ms, out_between(Instant(5s), Instant(1h), {1ms, FailureKind::overloaded, {}}));
    ASSERT_TRUE(run.gave_up.has_value());
    EXPECT_EQ(run.gave_up->kind, FailureKind::overloaded);
    EXPECT_GE(run.gave_up->silence, Nanos(600s));
    EXPECT_LE(run.makespan, Nanos(606s)) << "no event is needed for it";
}

TEST(Outage, PatienceIsWithTheWholeTeacher) {
    SchedulerOptions options = default_options();
    options.endpoints = 2;
    options.retry.outage_timeout = 10s;
    const VirtualTeacher teacher = [](const IssueAction& request, std::uint32_t, Instant) {
        return request.endpoint == 0 ? VirtualAnswer{1ms, FailureKind::connection, {}} : VirtualAnswer{200ms, {}, {}};
    };
    EXPECT_FALSE(run_virtual(options, 50ms, teacher).gave_up.has_value());
}

TEST(Outage, ATeacherThatIsMerelySlowTriesNobodysPatience) {
    SchedulerOptions options = default_options();
    options.end = 20;
    options.retry.outage_timeout = 10s;
    EXPECT_FALSE(run_virtual(options, 50ms, out_between(Instant(), Instant(1h), {30s, {}, {}})).gave_up.has_value());
}

TEST(Outage, ANotFoundIsWaitedForUntilTheFirstAnswer) {
    // While it loads its model, and again after it was started anew; but not out of the blue.
    const VirtualAnswer missing{1ms, FailureKind::not_found, {}};
    EXPECT_FALSE(run_virtual(default_options(), 50ms, out_between(Instant(), Instant(90s), missing)).gave_up);
    const VirtualTeacher restarted = [&](const IssueAction&, std::uint32_t, Instant now) {
        if (now >= Instant(5s) && now < Instant(20s)) {
            return VirtualAnswer{1ms, FailureKind::connection, {}};
        }
        return now >= Instant(20s) && now < Instant(90s) ? missing : VirtualAnswer{200ms, {}, {}};
    };
    EXPECT_FALSE(run_virtual(default_options(), 50ms, restarted).gave_up);
    const VirtualRun gone = run_virtual(default_options(), 50ms, out_between(Instant(5s), Instant(90s), missing));
    ASSERT_TRUE(gone.gave_up.has_value());
    EXPECT_EQ(gone.gave_up->kind, FailureKind::not_found);
    EXPECT_EQ(gone.gave_up->silence, Nanos(0));

    SchedulerOptions patient = default_options();
    patient.retry.outage_timeout = 100s;
    const VirtualRun never = run_virtual(patient, 50ms, out_between(Instant(), Instant(1h), missing));
    ASSERT_TRUE(never.gave_up.has_value());
    EXPECT_GE(never.gave_up->silence, Nanos(100s));
}

TEST(Outage, FaultsOfAnswersStillSpendAttempts) {
    for (const FailureKind kind : {FailureKind::server_error, FailureKind::bad_response}) {
        const VirtualRun run = run_virtual(default_options(), 50ms, out_between({}, Instant(1h), {1ms, kind, {}}));
        ASSERT_TRUE(run.gave_up.has_value());
        EXPECT_EQ(run.gave_up->attempts, 9U);
        EXPECT_EQ(run.gave_up->silence, Nanos(0));
    }
}

TEST(Outage, IsSeenWhileItLasts) {
    SchedulerOptions options = default_options();
    options.limit.ceiling = 1;
    PrefetchScheduler scheduler(options);
    const auto issued = only<IssueAction>(scheduler.poll(Instant(1s)));
    EXPECT_FALSE(scheduler.silent_since());
    scheduler.on_failed(issued[0].request, FailureKind::connection, {}, Instant(2s));
    EXPECT_EQ(scheduler.silent_since(), Instant(2s));
    const auto again = only<IssueAction>(scheduler.poll(Instant(4s)));
    ASSERT_EQ(again.size(), 1U);
    scheduler.on_completed(again[0].request, {1, 1}, Instant(5s));
    EXPECT_FALSE(scheduler.silent_since());
}

}  // namespace
}  // namespace distilld::bench
