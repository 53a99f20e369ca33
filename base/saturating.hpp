#pragma once

#include <cstdint>
#include <limits>

/// Arithmetic on sizes from outside: an overflow gives the largest number.
namespace distilld {

inline constexpr std::uint64_t kSaturated = std::numeric_limits<std::uint64_t>::max();

[[nodiscard]] constexpr std::uint64_t saturating_sum(std::uint64_t a, std::uint64_t b) noexcept {
    return b > kSaturated - a ? kSaturated : a + b;
}

[[nodiscard]] constexpr std::uint64_t saturating_product(std::uint64_t a, std::uint64_t b) noexcept {
    return a != 0 && b > kSaturated / a ? kSaturated : a * b;
}

}  // namespace distilld
