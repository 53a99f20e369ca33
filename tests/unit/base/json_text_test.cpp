#include "base/json_text.hpp"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <cmath>
#include <limits>

#include "base/random.hpp"

namespace distilld {
namespace {

TEST(JsonText, WritesNothingButUtf8) {
    const boost::json::value value{{"a\xFF", "\xE8 in Latin-1"}, {"whole", "caf\u00E9"}};
    const std::string text = to_text(value);
    EXPECT_EQ(text, "{\"a\uFFFD\":\"\uFFFD in Latin-1\",\"whole\":\"caf\u00E9\"}");
    EXPECT_TRUE(parse_json_text(text, 4).has_value());
}

TEST(NumberText, IsWhatPeopleWrite) {
    EXPECT_EQ(number_text(0.001), "0.001");
    EXPECT_EQ(number_text(60.0), "60");
    EXPECT_EQ(number_text(1e-8), "1e-8");
    EXPECT_EQ(number_text(0.0000001), "0.0000001");
    EXPECT_EQ(number_text(-2.5), "-2.5");
    EXPECT_EQ(number_text(0.1 + 0.2), "0.30000000000000004");
    EXPECT_EQ(number_text(1e16), "10000000000000000");
    EXPECT_EQ(number_text(1e17), "1e17");
    EXPECT_EQ(number_text(1.5e300), "1.5e300");
    EXPECT_EQ(number_text(-1.25e-300), "-1.25e-300");
    EXPECT_EQ(number_text(0.0), "0");
    EXPECT_EQ(number_text(-0.0), "-0");
    EXPECT_EQ(number_text(std::numeric_limits<double>::quiet_NaN()), "null");
    EXPECT_EQ(number_text(-std::numeric_limits<double>::infinity()), "null");
}

TEST(NumberText, ReadsBackToTheSameBits) {
    SplitMix64 random(7);
    for (int i = 0; i < 20000; ++i) {
        const double number = std::bit_cast<double>(random.next());
        if (!std::isfinite(number)) {
            continue;
        }
        const std::string text = number_text(number);
        const auto value = parse_json_text(text, 1);
        ASSERT_TRUE(value) << text;
        EXPECT_EQ(std::bit_cast<std::uint64_t>(value->to_number<double>()), std::bit_cast<std::uint64_t>(number))
            << text;
    }
}

TEST(ToText, WritesEveryKindOfValue) {
    const boost::json::value value = boost::json::parse(
        R"({"a":[1,-2,0.5,1e-9,18446744073709551615],"b":{},"c":[],"d\n\"é":"x\u0001","e":null,"f":true})");
    EXPECT_EQ(to_text(value),
              R"({"a":[1,-2,0.5,1e-9,18446744073709551615],"b":{},"c":[],"d\n\"é":"x\u0001","e":null,"f":true})");
    EXPECT_EQ(to_text(boost::json::value(std::nan(""))), "null");
    EXPECT_EQ(boost::json::parse(to_text(value)), value);
}

TEST(ParseJsonText, SaysWhereTheTextIsNoJson) {
    EXPECT_EQ(parse_json_text("{\n  \"a\": ,\n}", 8).error().reason, "syntax error, line 2, column 8");
    EXPECT_EQ(parse_json_text("[[[1]]]", 2).error().reason, "nested deeper than 2 levels, line 1, column 3");
    EXPECT_EQ(parse_json_text("{} x", 2).error().reason, "text after the end of the document, line 1, column 4");
    EXPECT_EQ(parse_json_text("[1", 2).error().reason, "the text ends too early, line 1, column 3");
}

TEST(ParseJsonText, NamesTheLineThatLacksAComma) {
    EXPECT_EQ(parse_json_text("{\n  \"a\": 1\n\n  \"b\": 2\n}", 8).error().reason,
              "syntax error, line 4, column 3: line 2 lacks a comma at its end");
    EXPECT_EQ(parse_json_text("[{}\n{}]", 8).error().reason,
              "syntax error, line 2, column 1: line 1 lacks a comma at its end");
    EXPECT_EQ(parse_json_text(R"({"a" "b"})", 8).error().reason,
              "syntax error, line 1, column 6: a comma or a colon is missing in front of it");
    EXPECT_EQ(parse_json_text("{\"a\": 1,\n}", 8).error().reason,
              "syntax error, line 2, column 1: remove the comma in front of }");
}

TEST(DuplicateKeys, AreNamedByTheirPointers) {
    EXPECT_EQ(duplicate_keys(R"({"a":1,"b":{"x/y":1,"x/y":2},"a":2,"c":[{"d":1,"d":2}]})", 8),
              (std::vector<std::string>{"/b/x~1y", "/a", "/c/0/d"}));
}

}  // namespace
}  // namespace distilld
