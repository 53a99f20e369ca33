#include "pipeline/graph/teacher/teacher_watch.hpp"

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
    EXPECT_EQ(warnings(), std::vector<std::string>{"http://a: HTTP 503 (overloaded): retrying"});
    watch_.on_failure(FailureKind::timeout, "http://b: no answer", Instant(10s));
    ASSERT_EQ(warnings().size(), 2U);
    EXPECT_EQ(warnings()[1], "http://b: no answer (timeout): retrying (and 99 more like it before)");
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
    EXPECT_NE(said[1].find("http://a: circuit breaker open"), std::string::npos);
    EXPECT_EQ(said[2], "http://a asks for a pause of 10 s (Retry-After)");
    EXPECT_EQ(said[3],
              "http://a asks for a pause of 3600 s (Retry-After); limited to 300 s "
              "(/teacher/max_retry_after_secs) (and 1 more like it before)");
}

TEST_F(TeacherWatchTest, AnOutageIsToldOfWhenTheStudentHasWaitedAndOnceMoreWhenItIsOver) {
    const TeacherNews idle{.failing_since = Instant(100s)};
    const TeacherNews waiting{.failing_since = Instant(100s), .wanted_since = Instant(101s)};
    watch_.on_failure(FailureKind::connection, "http://a: refused", Instant(100s));
    watch_.update(waiting, Instant(101s));
    EXPECT_TRUE(waits().empty()) << "it may be over in a moment";
    EXPECT_EQ(watch_.next_wakeup(waiting, Instant(101s)), Instant(105s));
    watch_.update(idle, Instant(106s));
    EXPECT_TRUE(waits().empty()) << "the student has enough to train on";
    EXPECT_FALSE(watch_.next_wakeup(idle, Instant(106s)));
    watch_.update(waiting, Instant(107s));
    ASSERT_EQ(waits().size(), 1U);
    EXPECT_EQ(waits()[0].code, "teacher_unavailable");
    EXPECT_EQ(waits()[0].message, "no answer from the teacher; last: http://a: refused");
    EXPECT_EQ(waits()[0].since, 993.0);
    watch_.update(waiting, Instant(200s));
    EXPECT_EQ(waits().size(), 1U) << "nothing has changed";
    watch_.on_failure(FailureKind::overloaded, "http://a: HTTP 503", Instant(201s));
    watch_.update(waiting, Instant(201s));
    ASSERT_EQ(waits().size(), 2U);
    EXPECT_EQ(waits()[1].since, 899.0);
    watch_.on_failure(FailureKind::connection, "http://a: refused", Instant(202s));
    watch_.update(waiting, Instant(202s));
    EXPECT_EQ(waits().size(), 2U) << "not twice in ten seconds";
    EXPECT_EQ(watch_.next_wakeup(waiting, Instant(202s)), Instant(211s));
    EXPECT_EQ(watch_.lost(), 0s) << "it is not over";
    watch_.update({}, Instant(203s));
    ASSERT_EQ(waits().size(), 3U);
    EXPECT_EQ(waits()[2].code, "");
    EXPECT_EQ(waits()[2].message, "the teacher answers again, after 103 s");
    EXPECT_EQ(watch_.lost(), 102s) << "what the student has waited";
    watch_.update({}, Instant(204s));
    EXPECT_EQ(waits().size(), 3U);
}

TEST_F(TeacherWatchTest, ATeacherThatSaysNothingIsToldOf) {
    TeacherWatchOptions options;
    options.asked = "http://a";
    TeacherWatch watch([this](const WorkerEvent& event) { events_.push_back(event); }, [] { return 1000.0; }, options);
    TeacherNews news{.unanswered_since = Instant(100s)};
    EXPECT_EQ(watch.next_wakeup(news, Instant(101s)), Instant(105s)) << "the student may wait by then";
    news.wanted_since = Instant(102s);
    EXPECT_EQ(watch.next_wakeup(news, Instant(102s)), Instant(107s));
    watch.update(news, Instant(106s));
    EXPECT_TRUE(waits().empty());
    watch.update(news, Instant(107s));
    ASSERT_EQ(waits().size(), 1U);
    EXPECT_EQ(waits()[0].code, "teacher_unavailable");
    EXPECT_EQ(waits()[0].message, "no answer from http://a; a request may take 60 s (/teacher/timeout_secs)");
    EXPECT_EQ(waits()[0].since, 995.0);
    watch.update(news, Instant(120s));
    EXPECT_EQ(waits().size(), 1U) << "it is said once";
    EXPECT_FALSE(watch.next_wakeup(news, Instant(120s)));
    watch.update({}, Instant(122500ms));
    ASSERT_EQ(waits().size(), 2U);
    EXPECT_EQ(waits()[1].code, "");
    EXPECT_EQ(waits()[1].message, "the teacher answers again, after 21 s");
    EXPECT_EQ(watch.lost(), 20500ms);
    // What usually takes as long is no hang, and of nobody nothing is said.
    news = {.wanted_since = Instant(200s), .unanswered_since = Instant(200s), .usual = 20s};
    watch.update(news, Instant(230s));
    EXPECT_EQ(waits().size(), 2U);
    EXPECT_EQ(watch.next_wakeup(news, Instant(230s)), Instant(240s));
    news.usual = {};
    watch_.update(news, Instant(230s));
    EXPECT_EQ(waits().size(), 2U);
    EXPECT_FALSE(watch_.next_wakeup(news, Instant(201s)));
}

TEST_F(TeacherWatchTest, AHangThatBecomesAFailureIsOneWait) {
    TeacherWatchOptions options;
    options.asked = "http://a";
    TeacherWatch watch([this](const WorkerEvent& event) { events_.push_back(event); }, [] { return 1000.0; }, options);
    watch.update({.wanted_since = Instant(100s), .unanswered_since = Instant(100s)}, Instant(105s));
    watch.on_failure(FailureKind::timeout, "http://a: no answer within 60 s", Instant(160s));
    watch.update({.failing_since = Instant(160s), .wanted_since = Instant(100s)}, Instant(160s));
    ASSERT_EQ(waits().size(), 2U);
    EXPECT_EQ(waits()[1].message, "no answer from the teacher; last: http://a: no answer within 60 s");
    EXPECT_EQ(waits()[1].since, 940.0);
    watch.end();
    ASSERT_EQ(waits().size(), 3U);
    EXPECT_EQ(waits()[2].code + waits()[2].message, "") << "who gives up has not been answered";
}

}  // namespace
}  // namespace distilld
