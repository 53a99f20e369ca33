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

TEST(ToValidUtf8, LeavesWhatIsUtf8) {
    for (const std::string text : {"", "plain\n", "aé€😀", "\xED\x9F\xBF\xEE\x80\x80", "\xF4\x8F\xBF\xBF"}) {
        EXPECT_EQ(to_valid_utf8(text), text);
    }
    EXPECT_EQ(to_valid_utf8(std::string_view("a\0b", 3)), std::string("a\0b", 3));
}

TEST(ToValidUtf8, ReplacesWhatIsNot) {
    EXPECT_EQ(to_valid_utf8("caf\xE9!"), "caf\uFFFD!");              // Latin-1
    EXPECT_EQ(to_valid_utf8("a\x80z\xFF"), "a\uFFFDz\uFFFD");        // no lead, never in UTF-8
    EXPECT_EQ(to_valid_utf8("\xE2\x82"), "\uFFFD\uFFFD");            // cut short
    EXPECT_EQ(to_valid_utf8("\xE2\x82x"), "\uFFFD\uFFFDx");          // cut short, text goes on
    EXPECT_EQ(to_valid_utf8("\xC0\xAF"), "\uFFFD\uFFFD");            // overlong
    EXPECT_EQ(to_valid_utf8("\xE0\x80\xAF"), "\uFFFD\uFFFD\uFFFD");  // overlong
    EXPECT_EQ(to_valid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
    EXPECT_EQ(to_valid_utf8("\xF4\x90\x80\x80").size(), 12U);        // above U+10FFFF
    EXPECT_EQ(to_valid_utf8("\xF0\x9F\x98"
                            "\xF0\x9F\x98\x80"),
              "\uFFFD\uFFFD\uFFFD😀");
}

TEST(ToShownUtf8, F12WhatSteersATerminalIsSpelt) {
    EXPECT_EQ(to_shown_utf8("aé€😀 two\nlines\tand \\"), "aé€😀 two\nlines\tand \\");
    EXPECT_EQ(to_shown_utf8("\x1b[2J\r\x7f\u009b"), "\\u001b[2J\\u000d\\u007f\\u009b");
    EXPECT_EQ(to_shown_utf8("gpj.\u202Eexe"), "gpj.\\u202eexe");
    for (const char* control : {"\u202A", "\u202E", "\u2066", "\u2069", "\u200E", "\u200F", "\u061C"}) {
        EXPECT_EQ(to_shown_utf8(control).size(), 6U) << control;
    }
    for (const char* text :
         {"\u00A0", "\u061B", "\u061D", "\u200D", "\u2010", "\u2029", "\u202F", "\u2065", "\u206A"}) {
        EXPECT_EQ(to_shown_utf8(text), text);
    }
    EXPECT_EQ(to_shown_utf8("caf\xE9\x9b"), "caf\uFFFD\uFFFD");
}

}  // namespace
}  // namespace distilld
