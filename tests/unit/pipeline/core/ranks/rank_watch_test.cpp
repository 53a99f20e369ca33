#include "pipeline/core/ranks/rank_watch.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace distilld {
namespace {

constexpr std::uint32_t kRanks = 4;
constexpr std::uint32_t kSilentLooks = 3;

class RankWatchTest : public ::testing::Test {
  protected:
    /// What the next look shows; all beats are new, but for those of `silent`.
    std::string looked(std::uint32_t silent = kRanks) {
        ++looks_;
        for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
            signs_.beats[rank] = rank == silent ? "1" : std::to_string(looks_ + 1);
        }
        const std::optional<RankVerdict> verdict = watch_.look(signs_);
        return verdict ? (verdict->left ? "left " : "lost ") + RankWatch::write(*verdict) : "";
    }

    int looks_ = 0;
    RankSigns signs_{std::vector<std::string>(kRanks), std::vector<std::optional<std::string>>(kRanks), {}};
    RankWatch watch_{2, kRanks, kSilentLooks};
};

TEST_F(RankWatchTest, CountsLooksWithoutABeat) {
    for (std::uint32_t look = 0; look <= kSilentLooks; ++look) {
        EXPECT_EQ(looked(1), "");
    }
    EXPECT_EQ(looked(1), "lost 1 rank 1 of 4 is lost: nothing is heard of it");
}

TEST_F(RankWatchTest, IsNotSilentItself) {
    for (std::uint32_t look = 0; look <= 2 * kSilentLooks; ++look) {
        EXPECT_EQ(looked(2), "");
    }
}

TEST_F(RankWatchTest, GoesOnAfterOthersThanTheFirstHaveLeft) {
    EXPECT_EQ(looked(), "");
    signs_.ends[3] = RankWatch::end_of_run();
    for (std::uint32_t look = 0; look <= 2 * kSilentLooks; ++look) {
        EXPECT_EQ(looked(3), "");
    }
    signs_.ends[0] = RankWatch::end_of_run();
    EXPECT_EQ(looked(), "left 0 rank 0 of 4 has ended the run");
}

TEST_F(RankWatchTest, PrefersWhatARankSaysToSilence) {
    for (std::uint32_t look = 0; look <= kSilentLooks; ++look) {
        EXPECT_EQ(looked(1), "");
    }
    signs_.ends[3] = RankWatch::end_by_failure("its disk is full");
    EXPECT_EQ(looked(1), "lost 3 rank 3 of 4 has failed: its disk is full");
}

TEST_F(RankWatchTest, NamesTheRankThatAnotherOneMisses) {
    signs_.ends[3] = RankWatch::end_by_verdict({1, false, "rank 1 of 4 is lost: a reason"});
    EXPECT_EQ(looked(), "lost 1 rank 1 of 4 is lost: a reason");
}

TEST_F(RankWatchTest, TakesThePublishedVerdict) {
    signs_.ends[3] = RankWatch::end_by_failure("another reason");
    signs_.verdict = RankWatch::write({1, false, "a reason"});
    EXPECT_EQ(looked(), "lost 1 a reason");
}

TEST_F(RankWatchTest, WaitsForOneLookWhenATransferBreaks) {
    watch_.suspect(3, "reset by peer");
    watch_.suspect(1, "a consequence");
    EXPECT_EQ(looked(), "");
    EXPECT_EQ(looked(), "lost 3 rank 3 of 4 is lost: reset by peer");

    RankWatch other(2, kRanks, kSilentLooks);
    other.suspect(3, "reset by peer");
    EXPECT_FALSE(other.look(signs_));
    signs_.ends[1] = RankWatch::end_by_failure("out of memory");
    EXPECT_EQ(other.look(signs_)->words, "rank 1 of 4 has failed: out of memory");
}

TEST_F(RankWatchTest, ReadsWhateverIsPublished) {
    for (const char* text : {"", "x", "4 words", "-1 words", "1", "99999999999 words"}) {
        const RankVerdict verdict = watch_.read(text);
        EXPECT_FALSE(verdict.left) << text;
        EXPECT_LT(verdict.rank, kRanks) << text;
        EXPECT_EQ(verdict.words, "another rank is lost") << text;
    }
}

TEST_F(RankWatchTest, NamesWhoHasTheStore) {
    EXPECT_EQ(watch_.no_store(false, "timeout").words, "rank 0 of 4 is lost: its store does not answer: timeout");
    EXPECT_EQ(watch_.no_store(true, "timeout").words, "the launcher is lost: its store does not answer: timeout");
}

}  // namespace
}  // namespace distilld
