#include "server/http/accept_trouble.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace distilld::http {
namespace {

using namespace std::chrono_literals;

TEST(AcceptTrouble, F12IsSaidOnceAMinuteAndWaitedOutLongerEachTime) {
    AcceptTrouble trouble;
    AcceptTrouble::Time now{};
    std::vector<std::string> lines;
    std::vector<std::chrono::milliseconds> pauses;
    for (int i = 0; i < 7; ++i) {
        const auto verdict = trouble.failed("Too many open files", now);
        pauses.push_back(verdict.pause);
        if (!verdict.line.empty()) {
            lines.push_back(verdict.line);
        }
        now += verdict.pause;
    }
    EXPECT_EQ(lines, std::vector<std::string>{"accept: Too many open files"});
    EXPECT_EQ(pauses, (std::vector<std::chrono::milliseconds>{100ms, 200ms, 400ms, 800ms, 1600ms, 1600ms, 1600ms}));
    EXPECT_EQ(trouble.failed("Too many open files", now + 1min).line,
              "accept: Too many open files (6 more since this was last said)");
}

TEST(AcceptTrouble, F12WaitsAsShortAsAtFirstOnceAConnectionWasAccepted) {
    AcceptTrouble trouble;
    const AcceptTrouble::Time now{};
    EXPECT_EQ(trouble.failed("why", now).pause, 100ms);
    EXPECT_EQ(trouble.failed("why", now).pause, 200ms);
    trouble.accepted();
    const auto again = trouble.failed("why", now);
    EXPECT_EQ(again.pause, 100ms);
    EXPECT_EQ(again.line, "") << "one that comes and goes fills no log either";
}

}  // namespace
}  // namespace distilld::http
