#include "pipeline/core/ranks/rank_figures.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace distilld {
namespace {

TEST(RankFigures, ArriveAsTheyWereSent) {
    RankCounters sent;
    sent.host = "node-7.cluster";
    sent.tokens = 1234;
    sent.wait_input_seconds = 1.5;
    sent.wait_ranks_seconds = 2.5;
    sent.busy_seconds = {{"student", 4.5}, {"snapshot", 0.25}};
    const std::string bytes = write_rank_figures(sent);
    EXPECT_EQ(bytes.size(), kRankFiguresSize);
    const RankCounters read = read_rank_figures(bytes).value();
    EXPECT_EQ(read.host, sent.host);
    EXPECT_EQ(read.tokens, sent.tokens);
    EXPECT_EQ(read.wait_input_seconds, sent.wait_input_seconds);
    EXPECT_EQ(read.wait_ranks_seconds, sent.wait_ranks_seconds);
    EXPECT_EQ(read.busy_seconds, sent.busy_seconds);
}

TEST(RankFigures, HaveOneSize) {
    RankCounters long_name;
    long_name.host = std::string(1000, 'x');
    EXPECT_EQ(read_rank_figures(write_rank_figures(long_name)).value().host, std::string(63, 'x'));
    const std::string bytes = write_rank_figures({});
    EXPECT_FALSE(read_rank_figures(bytes.substr(1)));
    EXPECT_FALSE(read_rank_figures(bytes + "x"));
    EXPECT_FALSE(read_rank_figures(""));
}

TEST(RankFigures, OfARankThatSaysAnythingHarmNobody) {
    RankCounters bad;
    bad.host = "<b>\xff\n\"host\x1b";
    bad.wait_input_seconds = std::numeric_limits<double>::quiet_NaN();
    bad.wait_ranks_seconds = -std::numeric_limits<double>::infinity();
    bad.busy_seconds = {{"student", std::numeric_limits<double>::infinity()}, {"optimizer", -1}};
    const RankCounters read = read_rank_figures(write_rank_figures(bad)).value();
    EXPECT_EQ(read.host, "?b????host?");
    EXPECT_EQ(read.wait_input_seconds, 0);
    EXPECT_EQ(read.wait_ranks_seconds, 0);
    EXPECT_TRUE(read.busy_seconds.empty());
    const std::string host_without_end = read_rank_figures(std::string(kRankFiguresSize, '\xff')).value().host;
    EXPECT_EQ(host_without_end, std::string(64, '?'));
}

}  // namespace
}  // namespace distilld
