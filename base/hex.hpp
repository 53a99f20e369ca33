#pragma once

#include <concepts>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace distilld {

inline constexpr std::string_view kHexDigits = "0123456789abcdef";

/// Two lower-case digits per byte.
[[nodiscard]] inline std::string hex(std::span<const std::byte> bytes) {
    std::string text;
    for (const std::byte byte : bytes) {
        text += kHexDigits[std::to_integer<unsigned>(byte >> 4)];
        text += kHexDigits[std::to_integer<unsigned>(byte & std::byte{15})];
    }
    return text;
}

/// All digits of a number, the highest first.
[[nodiscard]] std::string hex(std::unsigned_integral auto number) {
    std::string text(2 * sizeof number, '0');
    for (auto digit = text.rbegin(); digit != text.rend(); ++digit, number >>= 4U) {
        *digit = kHexDigits[number & 15U];
    }
    return text;
}

/// Whether the text has only lower-case digits.
[[nodiscard]] inline bool is_hex(std::string_view text) {
    return text.find_first_not_of(kHexDigits) == std::string_view::npos;
}

}  // namespace distilld
