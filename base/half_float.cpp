#include "base/half_float.hpp"

#include <bit>

namespace distilld {

std::uint16_t float_to_half(float value) noexcept {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
    const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
    if (magnitude > 0x7F800000U) {
        return static_cast<std::uint16_t>(sign | 0x7E00U);  // NaN stays a NaN
    }
    if (magnitude >= 0x477FF000U) {
        return static_cast<std::uint16_t>(sign | 0x7C00U);  // 65520 and above round to infinity
    }
    if (magnitude < 0x38800000U) {
        // Below 2^-14 the half is subnormal: a multiple of 2^-24. Adding 0.5 puts 2^-24 at the last place of the
        // float's significand, so that the addition itself rounds to nearest even.
        const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
        return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U));
    }
    const std::uint32_t odd = (magnitude >> 13U) & 1U;
    const std::uint32_t rounded = magnitude + 0xFFFU + odd - (112U << 23U);
    return static_cast<std::uint16_t>(sign | (rounded >> 13U));
}

float half_to_float(std::uint16_t bits) noexcept {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16U;
    const std::uint32_t exponent = (bits >> 10U) & 0x1FU;
    const std::uint32_t fraction = bits & 0x3FFU;
    if (exponent == 0) {
        const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
        return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
    }
    if (exponent == 31) {
        return std::bit_cast<float>(sign | 0x7F800000U | (fraction << 13U));
    }
    return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (fraction << 13U));
}

std::uint16_t float_to_bfloat16(float value) noexcept {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
    if ((bits & 0x7FFFFFFFU) > 0x7F800000U) {
        return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);
    }
    const std::uint32_t odd = (bits >> 16U) & 1U;
    return static_cast<std::uint16_t>((bits + 0x7FFFU + odd) >> 16U);
}

float bfloat16_to_float(std::uint16_t bits) noexcept {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}

}  // namespace distilld
