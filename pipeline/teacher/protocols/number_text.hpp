#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

/// Reads numbers, the largest part of a JSON answer, from JSON text. simdjson finds the structure; digits are read
/// here, because floats take less work than simdjson's doubles.
namespace distilld {

static_assert(std::endian::native == std::endian::little, "digits are read eight at a time");

/// This many bytes after the end of a text must be readable.
inline constexpr std::size_t kNumberTextPadding = 16;

/// Reads a number with std::from_chars, for cases that read_float does not handle. Null if there is no JSON number at
/// `at`, or if it is too large for a double; else the first byte after it.
[[nodiscard]] const char* read_exact_double(const char* at, const char* end, double& value) noexcept;

namespace detail {

inline constexpr std::array<double, 18> kPowersOfTen{1e0, 1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,
                                                     1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17};
inline constexpr std::array<std::uint64_t, 9> kShortPowersOfTen{1,      10,      100,      1000,     10000,
                                                                100000, 1000000, 10000000, 100000000};

[[nodiscard]] inline std::uint64_t load_eight(const char* at) noexcept {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, at, sizeof bytes);
    return bytes;
}

/// Number of leading digits in eight bytes.
[[nodiscard]] inline unsigned leading_digits(std::uint64_t bytes) noexcept {
    // Carries and borrows run towards later bytes, so they affect none before the first non-digit.
    const std::uint64_t others = ((bytes + 0x4646464646464646U) | (bytes - 0x3030303030303030U)) & 0x8080808080808080U;
    return others == 0 ? 8U : static_cast<unsigned>(std::countr_zero(others)) / 8U;
}

/// The number in eight digits, less 0x30 each: pairs, then fours, then all.
[[nodiscard]] inline std::uint64_t value_of_eight(std::uint64_t digits) noexcept {
    digits = (digits * 10) + (digits >> 8U);
    return (((digits & 0x000000FF000000FFU) * 0x000F424000000064U) +
            (((digits >> 16U) & 0x000000FF000000FFU) * 0x0000271000000001U)) >>
           32U;
}

/// The number in the first `count` of eight bytes.
[[nodiscard]] inline std::uint64_t value_of_first(std::uint64_t bytes, unsigned count) noexcept {
    // Shifts out the bytes after the digits; zeros enter at the front.
    return count == 0 ? 0 : value_of_eight((bytes - 0x3030303030303030U) << (64 - 8 * count));
}

/// Appends up to eight digits at `at` to `number`; returns their number.
inline unsigned append_eight(const char* at, std::uint64_t& number) noexcept {
    const std::uint64_t bytes = load_eight(at);
    const unsigned count = leading_digits(bytes);
    number = number * kShortPowersOfTen[count] + value_of_first(bytes, count);
    return count;
}

/// Appends all digits at `at`. The caller checks that there are not too many.
[[nodiscard]] inline const char* append_digits(const char* at, std::uint64_t& number) noexcept {
    unsigned count = append_eight(at, number);
    // Predictable: in one answer, most numbers have eight digits here, or most have fewer. Few have more than sixteen.
    if (count == 8) {
        count = append_eight(at + 8, number) + 8;
        while (static_cast<unsigned char>(at[count]) - unsigned{'0'} <= 9) {
            count += append_eight(at + count, number);
        }
    }
    return at + count;
}

}  // namespace detail

/// Reads the JSON number at `at`, rounded to the nearest double and then to the nearest float, as simdjson and a cast
/// would. Null if there is none; else the first byte after it. Any length is allowed; `end` is the end of the text.
[[nodiscard]] inline const char* read_float(const char* at, const char* end, float& value) noexcept {
    using namespace detail;
    const char* const begin = at;
    const bool negative = *at == '-';
    at += negative ? 1 : 0;
    const char* const integer = at;
    std::uint64_t digits = 0;
    at += append_eight(at, digits);
    const auto integers = at - integer;
    if (integers == 0 || (*integer == '0' && integers > 1)) {
        return nullptr;
    }
    std::int64_t fractions = 0;
    if (*at == '.') {
        const char* const fraction = at + 1;
        at = append_digits(fraction, digits);
        fractions = at - fraction;
        if (fractions == 0) {
            return nullptr;
        }
    }
    // Eighteen digits are below 2^63, and ten to the power of 17 is a double.
    if (integers == 8 || integers + fractions > 18 || (*at | 0x20) == 'e') [[unlikely]] {
        double exact = 0;
        at = read_exact_double(begin, end, exact);
        value = static_cast<float>(exact);
        return at;
    }
    const double close =
        static_cast<double>(static_cast<std::int64_t>(digits)) / kPowersOfTen[static_cast<std::size_t>(fractions)];
    // Two roundings: off the exact number by at most two units in the last place of a double. A float lacks 29 of its
    // bits: below half they round down, above half up, so only near half the exact number must decide. (These digits
    // are zero or a normal float.)
    constexpr std::uint64_t kLost = (std::uint64_t{1} << 29U) - 1;
    constexpr std::uint64_t kHalf = std::uint64_t{1} << 28U;
    const std::uint64_t lost = std::bit_cast<std::uint64_t>(close) & kLost;
    if (lost - (kHalf - 8) <= 16) [[unlikely]] {
        double exact = 0;
        at = read_exact_double(begin, end, exact);
        value = static_cast<float>(exact);
        return at;
    }
    const std::uint64_t sign = std::uint64_t{negative} << 63U;
    value = static_cast<float>(std::bit_cast<double>(std::bit_cast<std::uint64_t>(close) | sign));
    return at;
}

/// Reads a JSON number without point and exponent, of at most 64 bits; null if there is none.
[[nodiscard]] inline const char* read_magnitude(const char* at, std::uint64_t& magnitude) noexcept {
    using namespace detail;
    const char* const begin = at;
    magnitude = 0;
    at = append_digits(at, magnitude);
    const auto digits = at - begin;
    if (digits == 0 || digits > 20 || (*begin == '0' && digits > 1) || *at == '.' || (*at | 0x20) == 'e') {
        return nullptr;
    }
    // Twenty digits from 2^64 on wrap around: then the number is less than its first digits say.
    constexpr std::uint64_t kTwentyDigits = 10'000'000'000'000'000'000U;
    if (digits == 20 && (*begin != '1' || magnitude < kTwentyDigits)) {
        return nullptr;
    }
    return at;
}

[[nodiscard]] inline const char* skip_blanks(const char* at) noexcept {
    while (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t') {
        ++at;
    }
    return at;
}

/// How reading an array of numbers ended.
enum class ArrayEnd {
    whole,
    no_number,  ///< an element is not a number, or a comma is missing
    too_many,   ///< more numbers than there is room for
};

struct ArrayRead {
    ArrayEnd end = ArrayEnd::whole;
    std::size_t count = 0;  ///< numbers that were read
};

/// Reads `array`, which begins with its bracket, with `read_element(at, end, element)`. Fills `elements` in order.
template <class Element, class ReadElement>
[[nodiscard]] ArrayRead read_number_array(std::string_view array, std::span<Element> elements,
                                          ReadElement read_element) noexcept {
    const char* const end = array.data() + array.size();
    const char* at = skip_blanks(array.data() + 1);
    if (*at == ']') {
        return {};
    }
    for (std::size_t count = 0;; ++count) {
        if (count == elements.size()) {
            return {ArrayEnd::too_many, count};
        }
        at = read_element(at, end, elements[count]);
        if (at == nullptr) {
            return {ArrayEnd::no_number, count};
        }
        if (*at != ',') {
            at = skip_blanks(at);
            if (*at == ']') {
                return {at < end ? ArrayEnd::whole : ArrayEnd::no_number, count + 1};
            }
            if (*at != ',') {
                return {ArrayEnd::no_number, count + 1};
            }
        }
        ++at;
        if (static_cast<unsigned char>(*at) <= ' ') {
            at = skip_blanks(at);
        }
    }
}

/// The floats of an array.
[[nodiscard]] inline ArrayRead read_float_array(std::string_view array, std::span<float> elements) noexcept {
    return read_number_array(array, elements,
                             [](const char* at, const char* end, float& value) { return read_float(at, end, value); });
}

}  // namespace distilld
