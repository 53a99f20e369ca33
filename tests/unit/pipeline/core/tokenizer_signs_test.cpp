#include "pipeline/core/tokenizer_signs.hpp"

#include <gtest/gtest.h>

#include <utility>

namespace distilld {
namespace {

TokenizerSigns hashed(std::string hash) {
    TokenizerSigns signs;
    signs.hash = std::move(hash);
    return signs;
}

TokenizerSigns with_ids(std::vector<std::int32_t> ids, std::size_t frame = 0) {
    TokenizerSigns signs;
    signs.ids = std::move(ids);
    signs.frame = frame;
    return signs;
}

TEST(TokenizerSigns, HashesAreCompared) {
    EXPECT_EQ(compare(hashed("a"), hashed("a")), TokenizersAre::same);
    EXPECT_EQ(compare(hashed("a"), hashed("b")), TokenizersAre::different);
    EXPECT_EQ(compare(hashed("a"), TokenizerSigns()), TokenizersAre::not_compared);
}

TEST(TokenizerSigns, IdsAreComparedWhereAHashIsMissing) {
    TokenizerSigns student = with_ids({4, 5, 6});
    student.hash = "a";
    EXPECT_EQ(compare(student, with_ids({4, 5, 6})), TokenizersAre::same);
    EXPECT_EQ(compare(student, with_ids({4, 5, 7})), TokenizersAre::different);
    EXPECT_EQ(compare(student, with_ids({4, 5})), TokenizersAre::different);
    EXPECT_EQ(compare(student, with_ids({})), TokenizersAre::not_compared);
}

TEST(TokenizerSigns, WhatIsPutAroundATextIsNoDifference) {
    EXPECT_EQ(compare(with_ids({1, 4, 5, 6, 2}, 2), with_ids({4, 5, 6})), TokenizersAre::same);
    EXPECT_EQ(compare(with_ids({4, 5, 6}), with_ids({1, 4, 5, 6}, 1)), TokenizersAre::same);
    EXPECT_EQ(compare(with_ids({1, 4, 5, 6, 2}, 2), with_ids({4, 5, 7})), TokenizersAre::different);
    EXPECT_EQ(compare(with_ids({1, 4, 5, 6}, 1), with_ids({1, 4, 5, 6})), TokenizersAre::different);
    EXPECT_EQ(compare(with_ids({1}, 1), with_ids({4})), TokenizersAre::not_compared) << "nothing but the frame";
}

}  // namespace
}  // namespace distilld
