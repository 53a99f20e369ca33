#include "base/json_fields.hpp"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <cmath>
#include <cstdint>
#include <limits>

namespace distilld {
namespace test {

struct Part {
    std::string name;
    std::uint32_t count = 7;
};

struct Whole {
    std::string text = "t";
    bool flag = false;
    std::int64_t number = -3;
    double real = 0.25;
    std::optional<double> maybe;
    std::vector<Part> parts;
    std::map<std::string, std::uint64_t> counts;
    Part nested;
    boost::json::object raw;
};

template <class Visitor, Describes<Part> T>
void describe(Visitor& v, T& part) {
    v("name", part.name);
    v("count", part.count);
}

template <class Visitor, Describes<Whole> T>
void describe(Visitor& v, T& whole) {
    v("text", whole.text);
    v("flag", whole.flag);
    v("number", whole.number);
    v("real", whole.real);
    v("maybe", whole.maybe);
    v("parts", whole.parts);
    v("counts", whole.counts);
    v("nested", whole.nested);
    v("raw", whole.raw);
}

}  // namespace test

namespace {

using test::Whole;

TEST(JsonFields, WritesInTheOrderOfTheDescription) {
    Whole whole;
    whole.parts = {{"a", 1}, {"b", 2}};
    whole.counts = {{"x", 5}};
    whole.raw = {{"free", 1}};
    EXPECT_EQ(to_text(write_fields(whole)),
              R"({"text":"t","flag":false,"number":-3,"real":0.25,"maybe":null,)"
              R"("parts":[{"name":"a","count":1},{"name":"b","count":2}],"counts":{"x":5},)"
              R"("nested":{"name":"","count":7},"raw":{"free":1}})");
}

TEST(JsonFields, ReadsWhatItWrote) {
    Whole whole;
    whole.text = "other";
    whole.flag = true;
    whole.maybe = 1.5;
    whole.parts = {{"a", 1}};
    whole.counts = {{"x", 5}, {"y", std::numeric_limits<std::uint64_t>::max()}};
    whole.nested = {"n", 9};
    const auto written = write_fields(whole);
    Whole read;
    ASSERT_TRUE(read_fields(written, read));
    EXPECT_EQ(write_fields(read), written);
}

TEST(JsonFields, MissingMembersKeepWhatIsThere) {
    Whole whole;
    ASSERT_TRUE(read_fields(boost::json::parse(R"({"flag":true,"unknown":[]})").get_object(), whole));
    EXPECT_TRUE(whole.flag);
    EXPECT_EQ(whole.text, "t");
    EXPECT_EQ(whole.nested.count, 7U);
}

TEST(JsonFields, WhatIsNotFiniteIsNull) {
    Whole whole;
    whole.real = std::numeric_limits<double>::infinity();
    const auto written = write_fields(whole);
    EXPECT_TRUE(written.at("real").is_null());
    ASSERT_TRUE(read_fields(written, whole));
    EXPECT_TRUE(std::isnan(whole.real));
}

TEST(JsonFields, NamesTheMemberOfTheWrongType) {
    const auto message = [](std::string_view text) {
        Whole whole;
        const auto read = read_fields(boost::json::parse(text).get_object(), whole, {"line", ""});
        return read ? std::string("fine") : read.error().message;
    };
    EXPECT_EQ(message(R"({"text":1})"), "line: /text: is 1, a string is expected");
    EXPECT_EQ(message(R"({"number":0.5})"), "line: /number: is 0.5, a whole number in range is expected");
    EXPECT_EQ(message(R"({"flag":0})"), "line: /flag: is 0, true or false is expected");
    EXPECT_EQ(message(R"({"real":"1"})"), "line: /real: is \"1\", a number is expected");
    EXPECT_EQ(message(R"({"parts":[{},{"count":-1}]})"),
              "line: /parts/1/count: is -1, a whole number in range is expected");
    EXPECT_EQ(message(R"({"parts":{}})"), "line: /parts: is {}, an array is expected");
    EXPECT_EQ(message(R"({"counts":{"a/b":"x"}})"),
              "line: /counts/a~1b: is \"x\", a whole number in range is expected");
    EXPECT_EQ(message(R"({"nested":[]})"), "line: /nested: is [], an object is expected");
    EXPECT_EQ(message(R"({"raw":1})"), "line: /raw: is 1, an object is expected");
}

}  // namespace
}  // namespace distilld
