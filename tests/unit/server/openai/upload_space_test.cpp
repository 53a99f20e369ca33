#include "server/openai/upload_space.hpp"

#include <gtest/gtest.h>

namespace distilld::openai {
namespace {

/// What is free, found by taking it.
std::uint64_t free_of(UploadSpace& space) {
    std::uint64_t free = 0;
    while (space.take(free + 1)) {
        space.give_back(free + 1);
        ++free;
    }
    return free;
}

TEST(UploadSpace, HasRoomUpToTheLimit) {
    UploadSpace space(10, 4);
    EXPECT_FALSE(space.take(7));
    EXPECT_TRUE(space.take(6));
    EXPECT_FALSE(space.take(1));
    space.give_back(2);
    EXPECT_EQ(free_of(space), 2U);
}

TEST(UploadSpace, HasNoneWhereMoreIsTakenThanMayBe) {
    UploadSpace space(10, 15);
    EXPECT_FALSE(space.take(1));
    space.give_back(6);
    EXPECT_EQ(free_of(space), 1U);
}

TEST(SpaceClaim, GivesBackWhatWasNotKept) {
    const auto space = std::make_shared<UploadSpace>(10, 0);
    {
        SpaceClaim claim(space);
        EXPECT_TRUE(claim.use(3));
        EXPECT_TRUE(claim.use(4));
        EXPECT_FALSE(claim.use(4)) << "7 of 10 are used";
        EXPECT_EQ(free_of(*space), 3U);
    }
    EXPECT_EQ(free_of(*space), 10U);
}

TEST(SpaceClaim, HoldsWhatIsReservedAndKeepsWhatWasUsed) {
    const auto space = std::make_shared<UploadSpace>(10, 0);
    {
        SpaceClaim claim(space);
        EXPECT_TRUE(claim.reserve(6));
        EXPECT_EQ(free_of(*space), 4U);
        SpaceClaim other(space);
        EXPECT_FALSE(other.reserve(5)) << "two that began would both find no end";
        EXPECT_TRUE(claim.use(5));
        EXPECT_EQ(free_of(*space), 4U) << "used is what was reserved";
        EXPECT_TRUE(claim.use(3));
        EXPECT_EQ(free_of(*space), 2U);
        EXPECT_TRUE(claim.reserve(9));
        claim.keep();
    }
    EXPECT_EQ(free_of(*space), 2U);
}

}  // namespace
}  // namespace distilld::openai
