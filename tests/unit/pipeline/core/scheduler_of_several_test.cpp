#include <gtest/gtest.h>

#include <variant>
#include <vector>

#include "pipeline/core/scheduling/prefetch_scheduler.hpp"

namespace distilld {
namespace {

using namespace std::chrono_literals;

/// The scheduler of one of several teachers, driven by hand.
class SchedulerOfSeveral : public ::testing::Test {
  protected:
    static SchedulerOptions options() {
        SchedulerOptions made;
        made.end = 100;
        made.limit.ceiling = 2;
        made.one_of_several = true;
        return made;
    }

    std::vector<IssueAction> issued() {
        std::vector<IssueAction> found;
        for (const SchedulerAction& action : scheduler_.poll(now_)) {
            if (const auto* issue = std::get_if<IssueAction>(&action)) {
                found.push_back(*issue);
            }
        }
        return found;
    }

    PrefetchScheduler scheduler_{options()};
    Instant now_ = Instant{} + 1s;
};

TEST_F(SchedulerOfSeveral, WhereThereIsNothingToAskNothingIsMeasured) {
    auto first = issued();
    ASSERT_EQ(first.size(), 2U);
    EXPECT_TRUE(scheduler_.on_nothing_to_ask(first[0].request, now_));
    EXPECT_FALSE(scheduler_.on_nothing_to_ask(first[0].request, now_)) << "once";
    EXPECT_EQ(scheduler_.in_flight(), 1U);
    EXPECT_EQ(scheduler_.endpoints().in_flight(0), 1U);
    EXPECT_EQ(scheduler_.latencies().size(), 0U);
    EXPECT_EQ(scheduler_.counters().completed, 0U);
    EXPECT_EQ(scheduler_.buffered(), 1U) << "it is as good as answered";
    const auto next = issued();
    ASSERT_EQ(next.size(), 1U) << "its slot is another's";
    EXPECT_EQ(next.front().micro_batch, 2U);
}

TEST_F(SchedulerOfSeveral, NothingToAskIsNoProbeOfAnEndpointThatIsDown) {
    scheduler_.on_endpoint_absent(0, now_);
    now_ += 2s;
    auto probe = issued();
    ASSERT_EQ(probe.size(), 1U);
    EXPECT_TRUE(scheduler_.on_nothing_to_ask(probe.front().request, now_));
    EXPECT_TRUE(scheduler_.endpoints().is_open(0)) << "nobody has answered";
    EXPECT_EQ(issued().size(), 1U) << "the next one is the probe";
}

TEST_F(SchedulerOfSeveral, TheStudentWaitsForThisTeacherUntilItsRowsAreThere) {
    const auto first = issued();
    scheduler_.on_wanted(now_);
    now_ += 3s;
    EXPECT_EQ(scheduler_.waited(now_), 3s);
    scheduler_.on_completed(first[0].request, {}, now_);
    (void)issued();
    EXPECT_FALSE(scheduler_.wanted_since());
    now_ += 10s;  // another teacher's rows are missing
    EXPECT_EQ(scheduler_.waited(now_), 3s);
    scheduler_.on_taken(0, now_);
    scheduler_.on_completed(first[1].request, {}, now_);
    (void)issued();
    scheduler_.on_wanted(now_);
    now_ += 5s;
    EXPECT_EQ(scheduler_.waited(now_), 3s) << "its rows of the next were there before they were wanted";
}

TEST_F(SchedulerOfSeveral, TheOnlyTeacherIsWaitedForUntilTheMicroBatchIsTaken) {
    SchedulerOptions alone = options();
    alone.one_of_several = false;
    scheduler_ = PrefetchScheduler(alone);
    const auto first = issued();
    scheduler_.on_wanted(now_);
    scheduler_.on_completed(first[0].request, {}, now_);
    (void)issued();
    now_ += 2s;
    scheduler_.on_taken(0, now_);
    EXPECT_EQ(scheduler_.waited(now_), 2s);
}

}  // namespace
}  // namespace distilld
