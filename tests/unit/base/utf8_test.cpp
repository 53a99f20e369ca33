#include "base/utf8.hpp"

#include <gtest/gtest.h>

namespace distilld {
namespace {

TEST(CutUtf8, KeepsSequencesWhole) {
    EXPECT_EQ(cut_utf8("abc", 3), "abc");
    EXPECT_EQ(cut_utf8("abcd", 3), "abc");
    EXPECT_EQ(cut_utf8("aé", 2), "a");  // two bytes
    EXPECT_EQ(cut_utf8("aéx", 3), "aé");
    EXPECT_EQ(cut_utf8("€uro", 2), "");  // three bytes
    EXPECT_EQ(cut_utf8("😀", 3), "");    // four bytes
    EXPECT_EQ(cut_utf8("😀x", 4), "😀");
    EXPECT_EQ(cut_utf8("", 0), "");
}

}  // namespace
}  // namespace distilld
