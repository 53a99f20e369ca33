#include "pipeline/teacher/protocols/number_text.hpp"

#include <gtest/gtest.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>
#include <vector>

#include "base/random.hpp"

namespace distilld {
namespace {

/// With what may be read behind it.
std::string padded(const std::string& text) {
    return text + std::string(kNumberTextPadding, '7');
}

/// What the text's first number is read as; NaN where there is none, or where it does not end before `behind`.
float read(const std::string& number, const std::string& behind = ",") {
    const std::string text = padded(number + behind);
    const char* const end = text.data() + number.size() + behind.size();
    float value = 0;
    const char* const at = read_float(text.data(), end, value);
    return at == text.data() + number.size() ? value : std::numeric_limits<float>::quiet_NaN();
}

/// The C library rounds exactly, to the nearest double; then comes the cast.
float expected(const std::string& number) {
    return static_cast<float>(std::strtod(number.c_str(), nullptr));
}

std::string text_of(double value) {
    std::array<char, 40> digits;
    return {digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr};
}

TEST(NumberText, ReadsWhatServersWriteToTheLastBit) {
    SplitMix64 random(1);
    for (int i = 0; i < 400'000; ++i) {
        // Any float there is, as the double that it is; and doubles of any size beside them.
        const auto bits = static_cast<std::uint32_t>(random.next());
        const auto some = std::bit_cast<float>(bits);
        const double value = i % 2 == 0 ? static_cast<double>(some)
                                        : (random.uniform() - 0.6) * std::pow(10.0, random.below(30)) * 1e-12;
        if (!std::isfinite(value)) {
            continue;
        }
        const std::string text = text_of(value);
        ASSERT_EQ(std::bit_cast<std::uint32_t>(read(text)), std::bit_cast<std::uint32_t>(expected(text))) << text;
    }
}

TEST(NumberText, RoundsWhatLiesHalfwayBetweenTwoFloatsAsItsDigitsSay) {
    SplitMix64 random(2);
    for (int i = 0; i < 20'000; ++i) {
        const auto low = static_cast<float>(random.uniform() * 20 - 10);
        const float high = std::nextafter(low, 100.0F);
        const double half = (static_cast<double>(low) + static_cast<double>(high)) / 2;
        for (const double value : {half, std::nextafter(half, 100.0), std::nextafter(half, -100.0)}) {
            for (const int digits : {15, 16, 17, 18, 25}) {
                std::array<char, 64> text;
                const auto size = std::snprintf(text.data(), text.size(), "%.*f", digits, value);
                const std::string number(text.data(), static_cast<std::size_t>(size));
                ASSERT_EQ(read(number), expected(number)) << number;
            }
        }
    }
}

TEST(NumberText, ReadsEachFormOfANumber) {
    for (const std::string number : {"0",
                                     "-0",
                                     "0.0",
                                     "-0.0",
                                     "7",
                                     "-12",
                                     "1234567",
                                     "12345678",
                                     "123456789",
                                     "123456789012345678901234567890",
                                     "1e5",
                                     "1E5",
                                     "1e+5",
                                     "-2.5e-3",
                                     "0.1",
                                     "0.12345678",
                                     "0.123456789",
                                     "3.4028234663852886e38",
                                     "1e-45",
                                     "1.401298464324817e-45",
                                     "1e-50",
                                     "1e-400",
                                     "-1e-400",
                                     "0.000000000000000000000000000000000000012345",
                                     "99999999.99999999",
                                     "0e10",
                                     "1e38",
                                     "5e-324",
                                     "1.17549435e-38"}) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(read(number)), std::bit_cast<std::uint32_t>(expected(number))) << number;
        EXPECT_EQ(read(number, "]"), expected(number)) << number;
        EXPECT_EQ(read(number, " ,"), expected(number)) << number;
    }
    EXPECT_TRUE(std::isinf(read("1e300"))) << "a double, and no float";
}

TEST(NumberText, RefusesWhatIsNoNumberInJson) {
    for (const std::string text :
         {"",    "-",        "+1",        ".5",   "1.",    "-.5",  "01",    "-01",    "1.e5",  "1e",  "1e+",
          "NaN", "Infinity", "-Infinity", "null", "\"1\"", "0x10", "1e400", "-1e400", "1_000", "--1", "1,"}) {
        EXPECT_TRUE(std::isnan(read(text))) << text;
    }
}

TEST(NumberText, ReadsIntegersOfSixtyFourBits) {
    const auto magnitude = [](const std::string& number) -> std::string {
        const std::string text = padded(number + ",");
        std::uint64_t value = 0;
        const char* const at = read_magnitude(text.data(), value);
        return at == text.data() + number.size() ? std::to_string(value) : "none";
    };
    for (const std::string number :
         {"0", "7", "12345678", "123456789", "151935", "18446744073709551615", "9999999999999999999"}) {
        EXPECT_EQ(magnitude(number), number);
    }
    for (const std::string text : {"", "-1", "01", "1.0", "1e3", "1.5e1", "18446744073709551616",
                                   "99999999999999999999", "28446744073709551616", "184467440737095516150", "x"}) {
        EXPECT_EQ(magnitude(text), "none") << text;
    }
}

TEST(NumberText, ReadsArraysAndSaysHowTheyEnd) {
    std::vector<float> into(4);
    const auto read_array = [&into](const std::string& array) {
        const std::string text = padded(array);
        return read_float_array(std::string_view(text).substr(0, array.size()), into);
    };
    for (const std::string text : {"[1,2.5,-3]", "[ 1 ,\n2.5\t, -3 ]", "[1, 2.5, -3] "}) {
        const ArrayRead got = read_array(text);
        EXPECT_EQ(got.end, ArrayEnd::whole) << text;
        EXPECT_EQ(std::vector(into.begin(), into.begin() + static_cast<std::ptrdiff_t>(got.count)),
                  (std::vector<float>{1, 2.5F, -3}));
    }
    EXPECT_EQ(read_array("[]").count, 0U);
    EXPECT_EQ(read_array("[ ]").end, ArrayEnd::whole);
    EXPECT_EQ(read_array("[1,2,3,4]").end, ArrayEnd::whole);
    EXPECT_EQ(read_array("[1,2,3,4,5]").end, ArrayEnd::too_many);
    for (const std::string text : {"[1,2", "[1 2]", "[1,,2]", "[1,]", "[,1]", "[1,[2]]", "[1,2}", "[null]", "[1;2]"}) {
        EXPECT_EQ(read_array(text).end, ArrayEnd::no_number) << text;
    }
}

}  // namespace
}  // namespace distilld
