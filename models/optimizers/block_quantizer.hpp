#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "models/optimizers/state_sizes.hpp"

namespace distilld::models {

/// 8-bit numbers by "dynamic tree quantization" (Dettmers, arXiv 1511.04561 and 2110.02861 §2): seven decades below 1,
/// each with twice as many evenly spread values as the next lower one, plus 0 and 1. With a sign, each decade has half
/// as many values of either sign. Rounds to the nearest value, ties to the smaller.
class DynamicMap {
  public:
    explicit DynamicMap(bool is_signed);

    [[nodiscard]] float value(std::uint8_t code) const noexcept { return values_[code]; }
    [[nodiscard]] const std::array<float, 256>& values() const noexcept { return values_; }
    /// The boundaries between neighbouring values.
    [[nodiscard]] std::span<const float> middles() const noexcept { return middles_; }

    /// The code of a number in [-1, 1] ([0, 1] without a sign). A nonzero number never changes its sign.
    [[nodiscard]] std::uint8_t code(float number) const noexcept;

  private:
    [[nodiscard]] std::uint8_t nearest(float number) const noexcept;

    std::array<float, 256> values_{};
    std::array<float, 255> middles_{};
    /// Indexed by sign and by the upper half of |number|'s bits: a code at most two steps from the right one.
    std::array<std::array<std::uint8_t, 0x3F81>, 2> first_{};
};

}  // namespace distilld::models
