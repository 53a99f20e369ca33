#pragma once

#include <cstdint>

namespace distilld {

/// IEEE 754 half and bfloat16, round to nearest even.
[[nodiscard]] std::uint16_t float_to_half(float value) noexcept;
[[nodiscard]] float half_to_float(std::uint16_t bits) noexcept;
[[nodiscard]] std::uint16_t float_to_bfloat16(float value) noexcept;
[[nodiscard]] float bfloat16_to_float(std::uint16_t bits) noexcept;

}  // namespace distilld
