#include "server/openai/file_upload.hpp"

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

TEST(SpaceClaim, F12HoldsWhatCameAndNotWhatIsAnnounced) {
    const auto space = std::make_shared<UploadSpace>(10, 0);
    {
        SpaceClaim claim(space);
        EXPECT_FALSE(claim.has_room(11));
        EXPECT_TRUE(claim.has_room(10));
        EXPECT_EQ(free_of(*space), 10U) << "an announcement holds nothing";
        SpaceClaim other(space);
        EXPECT_TRUE(other.use(2));
        EXPECT_TRUE(claim.use(8));
        EXPECT_FALSE(claim.has_room(1));
        EXPECT_FALSE(other.use(1)) << "the bound holds for what came";
        claim.keep();
    }
    EXPECT_EQ(free_of(*space), 2U);
}

}  // namespace
}  // namespace distilld::openai
