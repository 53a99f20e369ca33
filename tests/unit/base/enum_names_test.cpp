#include "base/enum_names.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "base/json_fields.hpp"
#include "base/json_text.hpp"

namespace distilld {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum class Colour { red, blue, nameless };
constexpr std::array kColourNames{EnumName<Colour>{"red", Colour::red}, EnumName<Colour>{"blue", Colour::blue}};
constexpr const auto& enum_names(Colour) {
    return kColourNames;
}

enum class Shape { round, square, nameless };
BOOST_DESCRIBE_ENUM(Shape, round, square)

struct Paint {
    Colour colour = Colour::red;
    double litres = 0;
};

template <class Visitor, Describes<Paint> T>
void describe(Visitor& v, T& paint) {
    v("colour", paint.colour);
    v("litres", paint.litres);
}

TEST(EnumNames, GoBothWays) {
    EXPECT_STREQ(to_string(Colour::blue), "blue");
    EXPECT_STREQ(to_string(Colour::nameless), "unknown");
    EXPECT_EQ(enum_from_string<Colour>("blue"), Colour::blue);
    EXPECT_FALSE(enum_from_string<Colour>("Blue"));
    EXPECT_FALSE(enum_from_string<Colour>(""));
    EXPECT_THAT(names_of(kColourNames), ElementsAre("red", "blue"));
}

TEST(EnumNames, AreTheEnumeratorsOfADescribedEnumeration) {
    EXPECT_STREQ(to_string(Shape::square), "square");
    EXPECT_STREQ(to_string(Shape::nameless), "unknown");
    EXPECT_EQ(enum_from_string<Shape>("round"), Shape::round);
    EXPECT_FALSE(enum_from_string<Shape>("nameless"));
    EXPECT_THAT(names_of(kEnumNames<Shape>), ElementsAre("round", "square"));
}

TEST(EnumNames, AreTheValuesInJson) {
    EXPECT_EQ(to_text(write_fields(Paint{Colour::blue, 2})), R"({"colour":"blue","litres":2})");
    Paint paint;
    ASSERT_TRUE(read_fields(boost::json::object{{"colour", "blue"}}, paint));
    EXPECT_EQ(paint.colour, Colour::blue);
    for (const boost::json::value& wrong : {boost::json::value("green"), boost::json::value(1)}) {
        const auto read = read_fields(boost::json::object{{"colour", wrong}}, paint);
        ASSERT_FALSE(read);
        EXPECT_THAT(read.error().message, HasSubstr("/colour"));
        EXPECT_THAT(read.error().message, HasSubstr("one of red, blue"));
    }
    EXPECT_EQ(paint.colour, Colour::blue);
}

}  // namespace
}  // namespace distilld
