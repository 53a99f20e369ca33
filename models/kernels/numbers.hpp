#pragma once

#include <torch/types.h>

#include <bit>
#include <cstdint>
#include <type_traits>

#include "models/kernels/lanes.hpp"

namespace distilld::kernels {

/// What a kernel computes in for elements of type T: fp32, or fp64 for fp64.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

DISTILLD_INLINE float widened(c10::BFloat16 value) {
    return std::bit_cast<float>(std::uint32_t{value.x} << 16);
}
DISTILLD_INLINE float widened(float value) {
    return value;
}
DISTILLD_INLINE double widened(double value) {
    return value;
}

/// Rounds to the nearest, ties to even, as libtorch does.
template <typename T>
DISTILLD_INLINE T narrowed(Wide<T> value) {
    if constexpr (std::is_same_v<T, c10::BFloat16>) {
        const auto bits = std::bit_cast<std::uint32_t>(value);
        const std::uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
        const bool number = (bits & 0x7FFFFFFFU) <= 0x7F800000U;
        return {static_cast<std::uint16_t>(number ? rounded : 0x7FC0U), c10::BFloat16::from_bits()};
    } else {
        return value;
    }
}

/// `value` as it is after a store in T.
template <typename T>
DISTILLD_INLINE Wide<T> rounded(Wide<T> value) {
    return widened(narrowed<T>(value));
}

}  // namespace distilld::kernels
