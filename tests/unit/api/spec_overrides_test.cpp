#include "api/spec_overrides.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

namespace distilld::api {
namespace {

using ::testing::HasSubstr;

TEST(Overrides, SetReplaceRemoveAndMakeObjects) {
    const auto result = apply_overrides(R"({"a": {"b": 1}, "list": [1, 2]})", {{"/a/b", "2"},
                                                                               {"/a/c", "plain text"},
                                                                               {"/new/deep/x", "[true]"},
                                                                               {"/list/0", "\"9\""},
                                                                               {"/list/-", "3"},
                                                                               {"/e~1f", "{\"g\": null}"}});
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(boost::json::parse(*result), boost::json::parse(R"({"a": {"b": 2, "c": "plain text"},
        "list": ["9", 2, 3], "new": {"deep": {"x": [true]}}, "e/f": {"g": null}})"));
    EXPECT_EQ(*apply_overrides(R"({"a":{"b":1}})", {{"/a", "null"}}), "{}");
}

TEST(Overrides, RefuseWhatHasNoPlace) {
    const auto message = [](const char* pointer) {
        const auto result = apply_overrides(R"({"a": 1, "list": [1]})", {{pointer, "1"}});
        return result ? std::string("accepted") : result.error().message;
    };
    EXPECT_THAT(message("/a/b"), HasSubstr("/a/b"));
    EXPECT_THAT(message("/a/b"), HasSubstr("not an object"));
    EXPECT_THAT(message("/list/7"), HasSubstr("not an index"));
    EXPECT_THAT(message("/list/x/y"), HasSubstr("not an index"));
    EXPECT_THAT(message("a"), HasSubstr("begin with '/'"));
    EXPECT_THAT(message("/a~2"), HasSubstr("~0 or ~1"));
    EXPECT_THAT(message(""), HasSubstr("whole document"));
    EXPECT_FALSE(apply_overrides("{", {}));
    EXPECT_THAT(apply_overrides(R"({"a":1,"a":2})", {}).error().message, HasSubstr("/a"));
}

TEST(Overrides, AreSplitAtTheFirstEqualsSign) {
    const auto change = parse_override("/teacher/model=a=b");
    ASSERT_TRUE(change);
    EXPECT_EQ(change->first, "/teacher/model");
    EXPECT_EQ(change->second, "a=b");
    EXPECT_FALSE(parse_override("/teacher/model"));
    EXPECT_EQ(parse_override("teacher.model=a=b").value(), *change);
    EXPECT_EQ(parse_override("teacher/model=a=b").value(), *change);
    EXPECT_EQ(parse_override("output=/a.b").value(), Override("/output", "/a.b"));
    // A name with a dot takes the pointer.
    EXPECT_EQ(parse_override("/teachers/a.b/model=c").value(), Override("/teachers/a.b/model", "c"));
    EXPECT_FALSE(parse_override("=1"));
    EXPECT_FALSE(parse_override("/=1"));
    EXPECT_FALSE(parse_override(""));
}

}  // namespace
}  // namespace distilld::api
