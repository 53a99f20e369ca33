#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

namespace distilld {

/// A number formatted by a printf(3) pattern, for people: less than 64 characters.
[[nodiscard]] inline std::string formatted(const char* pattern, double number) {
    std::array<char, 64> text{};
    std::snprintf(text.data(), text.size(), pattern, number);
    return text.data();
}

/// "1 step", "2 steps"
[[nodiscard]] inline std::string counted(std::uint64_t count, const char* what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace distilld
