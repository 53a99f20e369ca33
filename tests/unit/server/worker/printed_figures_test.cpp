#include "server/worker/eval/printed_figures.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace distilld {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string refusal_of(const std::string& printed) {
    const auto figures = read_figures(printed);
    return figures ? "none: " + std::to_string(figures->size()) + " figures" : figures.error().message;
}

/// {"n0":0,"n1":1,…}
std::string numbers(std::size_t count) {
    std::string text;
    for (std::size_t i = 0; i < count; ++i) {
        text += (text.empty() ? "" : ",") + ("\"n" + std::to_string(i) + "\":" + std::to_string(i));
    }
    return "{" + text + "}";
}

TEST(PrintedFigures, AreTheNumbersOfTheLastLineOrOfAllThatWasPrinted) {
    EXPECT_THAT(read_figures(R"({"accuracy": 0.5, "count": 3})").value(),
                ElementsAre(Pair("accuracy", 0.5), Pair("count", 3)));
    EXPECT_THAT(read_figures("loading\n{\"old\": 1}\n{\"a\": -2e-3}\n \n").value(), ElementsAre(Pair("a", -0.002)));
    EXPECT_THAT(read_figures("{\n  \"a\": 1,\n  \"b\": 2\n}\n").value(), ElementsAre(Pair("a", 1), Pair("b", 2)));
    EXPECT_THAT(read_figures("{\"a\": 1}\r\n").value(), ElementsAre(Pair("a", 1)));
}

TEST(PrintedFigures, HaveTheNamesOfTheObjectsAroundThem) {
    // As lm-eval writes its results.
    const char* results = R"({"results": {"arc_easy": {"alias": "arc_easy", "acc,none": 0.25, "ok": true, "n": null},
        "list": [1, 2]}, "": {"..": 1}, "a/b": 3, "naïve": 4})";
    EXPECT_THAT(read_figures(results).value(), ElementsAre(Pair("_/_", 1), Pair("a_b", 3), Pair("na__ve", 4),
                                                           Pair("results/arc_easy/acc_none", 0.25)));
}

TEST(PrintedFigures, TextWithoutAnObjectOfNumbersIsRefused) {
    EXPECT_THAT(refusal_of(""), HasSubstr("nothing"));
    EXPECT_THAT(refusal_of(" \n\n"), HasSubstr("nothing"));
    EXPECT_THAT(refusal_of("accuracy 0.5"), HasSubstr("the last line that it printed on stdout is not a JSON object"));
    EXPECT_THAT(refusal_of("{\"a\": 1}\ndone"), HasSubstr("is not a JSON object ("));
    EXPECT_THAT(refusal_of("0.5"), HasSubstr("is not a JSON object"));
    EXPECT_THAT(refusal_of("[1]"), HasSubstr("is not a JSON object"));
    EXPECT_THAT(refusal_of("{\"a\": NaN}"), HasSubstr("is not a JSON object"));
    EXPECT_THAT(refusal_of("{\"a\": Infinity}"), HasSubstr("is not a JSON object"));
    EXPECT_THAT(refusal_of("{\"a\": 1} {\"a\": 2}"), HasSubstr("is not a JSON object"));
    EXPECT_THAT(refusal_of("{\"a\xff\": 1}"), HasSubstr("is not a JSON object"));
    EXPECT_THAT(refusal_of(std::string("{\"a\": 1}\0", 9)), HasSubstr("is not a JSON object"));
    EXPECT_THAT(refusal_of("{}"), HasSubstr("has no numbers"));
    EXPECT_THAT(refusal_of(R"({"a": "1", "b": [1], "c": {"d": null}})"), HasSubstr("has no numbers"));
    std::string deep;
    for (int i = 0; i < 100'000; ++i) {
        deep += "{\"a\":";
    }
    EXPECT_THAT(refusal_of(deep), HasSubstr("is not a JSON object"));
}

TEST(PrintedFigures, TheirNumberNamesAndValuesAreBounded) {
    EXPECT_EQ(read_figures(numbers(kMaxFigures)).value().size(), kMaxFigures);
    EXPECT_EQ(refusal_of(numbers(kMaxFigures + 1)), "it printed 65 numbers: print at most 64");
    const std::string longest(kMaxFigureName, 'x');
    EXPECT_THAT(read_figures("{\"" + longest + "\": 1}").value(), ElementsAre(Pair(longest, 1)));
    EXPECT_EQ(refusal_of("{\"" + longest + "x\": 1}"),
              "of the numbers that it printed, " + longest.substr(0, 40) + "… is a name of more than 128 bytes");
    EXPECT_THAT(refusal_of("{\"" + longest.substr(1) + "\": {\"x\": 1}}"), HasSubstr("more than 128 bytes"));
    EXPECT_THAT(refusal_of("{\"a\": 1, \"b\": 1e999}"),
                ::testing::AnyOf(HasSubstr("b is not finite"), HasSubstr("is not a JSON object")));
    EXPECT_EQ(refusal_of(R"({"a b": 1, "a_b": 2})"),
              "of the numbers that it printed, a_b is there twice (only letters, digits and . _ : - count)");
}

}  // namespace
}  // namespace distilld
