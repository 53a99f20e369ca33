#include "base/json_members.hpp"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

namespace distilld {
namespace {

boost::json::object object_of(std::string_view text) {
    return boost::json::parse(text).get_object();
}

TEST(JsonMembers, ReadsWhatIsThereAndLeavesTheRest) {
    const auto object = object_of(R"({"name":"x","flag":true,"count":3,"whole":4.0,"rate":0.5,"none":null})");
    JsonMembers members(object);
    std::string name;
    bool flag = false;
    std::uint32_t count = 0;
    std::uint32_t whole = 0;
    double rate = 0;
    std::string none = "kept";
    std::string absent = "kept";
    members.text("name", name);
    members.boolean("flag", flag);
    members.integer("count", count);
    members.integer("whole", whole);
    members.real("rate", rate);
    members.text("none", none);
    members.text("absent", absent);
    EXPECT_FALSE(members.failed());
    EXPECT_EQ(name, "x");
    EXPECT_TRUE(flag);
    EXPECT_EQ(count, 3U);
    EXPECT_EQ(whole, 4U);
    EXPECT_EQ(rate, 0.5);
    EXPECT_EQ(none, "kept");
    EXPECT_EQ(absent, "kept");
}

TEST(JsonMembers, NamesTheMemberThatIsWrong) {
    const auto message = [](std::string_view text, auto read) {
        const auto object = object_of(text);
        JsonMembers members(object, {"config.json", "/rope"});
        read(members);
        return members.failed() ? members.error().message : std::string("fine");
    };
    const auto integer = [](JsonMembers& members) {
        std::int64_t target = 0;
        members.integer<std::int64_t>("n", target, 1, 9);
    };
    EXPECT_EQ(message(R"({"n":10})", integer), "config.json: /rope/n: is 10, a whole number from 1 to 9 is expected");
    EXPECT_EQ(message(R"({"n":0.5})", integer), "config.json: /rope/n: is 0.5, a whole number from 1 to 9 is expected");
    EXPECT_EQ(message(R"({"n":"1"})", integer),
              "config.json: /rope/n: is \"1\", a whole number from 1 to 9 is expected");
    EXPECT_EQ(message(R"({"n":9})", integer), "fine");
    const auto real = [](JsonMembers& members) {
        double target = 1;
        members.real_from("x", target, 0, false);
    };
    EXPECT_EQ(message(R"({"x":0})", real), "config.json: /rope/x: is 0, a number above 0 is expected");
    EXPECT_EQ(message(R"({"x":1e-3})", real), "fine");
    EXPECT_EQ(message(R"({})", real), "fine");
    EXPECT_EQ(message(R"({"a/b":1})",
                      [](JsonMembers& members) {
                          std::string target;
                          members.text("a/b", target);
                      }),
              "config.json: /rope/a~1b: is 1, a string is expected");
    EXPECT_EQ(message(R"({"x":null})", [](JsonMembers& members) { members.require("x"); }),
              "config.json: /rope/x: is missing");
}

TEST(JsonMembers, KeepsTheFirstError) {
    const auto object = object_of(R"({"a":1,"b":2})");
    JsonMembers members(object);
    std::string target;
    members.text("a", target);
    members.text("b", target);
    EXPECT_EQ(members.error().message, "/a: is 1, a string is expected");
    EXPECT_EQ(members.result().error().kind, ErrorKind::invalid_input);
}

}  // namespace
}  // namespace distilld
