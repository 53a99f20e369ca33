#include "pipeline/graph/teacher_watch.hpp"

#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

namespace distilld {
namespace {

using namespace std::chrono_literals;

class TeacherWatchTest : public ::testing::Test {
  protected:
    std::vector<std::string> warnings() const {
        std::vector<std::string> found;
        for (const WorkerEvent& event : events_) {
            if (const auto* log = std::get_if<LogEvent>(&event)) {
                EXPECT_EQ(log->level, "warn");
                found.push_back(log->message);
            }
        }
        return found;
    }
    std::vector<WaitingEvent> waits() const {
        std::vector<WaitingEvent> found;
        for (const WorkerEvent& event : events_) {
            if (const auto* waiting = std::get_if<WaitingEvent>(&event)) {
                found.push_back(*waiting);
            }
        }
        return found;
    }

    std::vector<WorkerEvent> events_;
    TeacherWatch watch_{[this](const WorkerEvent& event) { events_.push_back(event); }, [] { return 1000.0; }};
};

TEST_F(TeacherWatchTest, WarnsAtMostOnceInTenSecondsAndCountsTheRest) {
    for (int i = 0; i < 100; ++i) {
        watch_.on_failure(FailureKind::overloaded, "http://a: HTTP 503", Instant(i * 100ms));
    }
    EXPECT_EQ(warnings(), std::vector<std::string>{"http://a: HTTP 503 (overloaded): the request is made again"});
    watch_.on_failure(FailureKind::timeout, "http://b: no answer", Instant(10s));
    ASSERT_EQ(warnings().size(), 2U);
    EXPECT_EQ(warnings()[1], "http://b: no answer (timeout): the request is made again (and 99 more like it before)");
}

TEST_F(TeacherWatchTest, F12AReplicaThatIsKeptOutIsNamedOnceInTenMinutes) {
    const std::string kept_out = "http://b: does not serve the model of http://a";
    for (int i = 0; i < 40; ++i) {
        watch_.on_failure(FailureKind::not_found, kept_out, Instant(i * 15s));
    }
    EXPECT_EQ(warnings().size(), 1U);
    watch_.on_failure(FailureKind::connection, "http://b: refused", Instant(595s));
    EXPECT_EQ(warnings().size(), 2U) << "what is news is said";
    watch_.on_failure(FailureKind::not_found, kept_out, Instant(610s));
    EXPECT_EQ(warnings().size(), 3U);
}

TEST_F(TeacherWatchTest, EachKindOfWarningHasItsOwnTurn) {
    watch_.on_failure(FailureKind::overloaded, "http://a: HTTP 503", Instant(1s));
    watch_.on_breaker_opened("http://a", Instant(1s));
    watch_.on_retry_after("http://a", 10s, Instant(1s));
    watch_.on_retry_after("http://a", 10s, Instant(2s));
    watch_.on_retry_after("http://a", 1h, Instant(20s));
    const std::vector<std::string> said = warnings();
    ASSERT_EQ(said.size(), 4U);
    EXPECT_NE(said[1].find("http://a is left out"), std::string::npos);
    EXPECT_EQ(said[2], "http://a asks to be left alone for 10 s (Retry-After)");
    EXPECT_EQ(said[3],
              "http://a asks to be left alone for 3600 s (Retry-After); it is for 300 s "
              "(/teacher/max_retry_after_secs) (and 1 more like it before)");
}

TEST_F(TeacherWatchTest, AnOutageIsToldOfWhenTheStudentHasWaitedAndOnceMoreWhenItIsOver) {
    watch_.on_failure(FailureKind::connection, "http://a: refused", Instant(100s));
    watch_.update(Instant(100s), true, Instant(101s));
    EXPECT_TRUE(waits().empty()) << "it may be over in a moment";
    EXPECT_EQ(watch_.next_wakeup(Instant(100s), true, Instant(101s)), Instant(105s));
    watch_.update(Instant(100s), false, Instant(106s));
    EXPECT_TRUE(waits().empty()) << "the student has enough to train on";
    EXPECT_FALSE(watch_.next_wakeup(Instant(100s), false, Instant(106s)));
    watch_.update(Instant(100s), true, Instant(107s));
    ASSERT_EQ(waits().size(), 1U);
    EXPECT_EQ(waits()[0].code, "teacher_unavailable");
    EXPECT_EQ(waits()[0].message, "no answer from the teacher; last: http://a: refused");
    EXPECT_EQ(waits()[0].since, 993.0);
    watch_.update(Instant(100s), true, Instant(200s));
    EXPECT_EQ(waits().size(), 1U) << "nothing has changed";
    watch_.on_failure(FailureKind::overloaded, "http://a: HTTP 503", Instant(201s));
    watch_.update(Instant(100s), true, Instant(201s));
    ASSERT_EQ(waits().size(), 2U);
    EXPECT_EQ(waits()[1].since, 899.0);
    watch_.on_failure(FailureKind::connection, "http://a: refused", Instant(202s));
    watch_.update(Instant(100s), true, Instant(202s));
    EXPECT_EQ(waits().size(), 2U) << "not twice in ten seconds";
    EXPECT_EQ(watch_.next_wakeup(Instant(100s), true, Instant(202s)), Instant(211s));
    watch_.update({}, false, Instant(203s));
    ASSERT_EQ(waits().size(), 3U);
    EXPECT_EQ(waits()[2].code, "");
    watch_.update({}, false, Instant(204s));
    EXPECT_EQ(waits().size(), 3U);
}

}  // namespace
}  // namespace distilld
