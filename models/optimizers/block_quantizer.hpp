#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "models/optimizers/state_sizes.hpp"

namespace distilld::models {

/// A number of 8 bits by "dynamic tree quantization" (Dettmers, arXiv 1511.04561 and 2110.02861 §2): seven decades
/// below 1, of which each larger one has twice the values of the one before it, spread evenly over it, and beside them
/// 0 and 1. With a sign, the decades' values come with either sign too, half as many of each. Rounds to the nearest
/// value, ties to the smaller.
class DynamicMap {
  public:
    explicit DynamicMap(bool is_signed);

    [[nodiscard]] float value(std::uint8_t code) const noexcept { return values_[code]; }
    [[nodiscard]] const std::array<float, 256>& values() const noexcept { return values_; }
    /// Where one value's numbers end and the next one's begin.
    [[nodiscard]] std::span<const float> middles() const noexcept { return middles_; }

    /// The code of a number in [-1, 1] ([0, 1] without a sign). A number that is not 0 never changes its sign.
    [[nodiscard]] std::uint8_t code(float number) const noexcept;

  private:
    [[nodiscard]] std::uint8_t nearest(float number) const noexcept;

    std::array<float, 256> values_{};
    std::array<float, 255> middles_{};
    /// By the upper half of |number|'s bits, for either sign: a code from which the right one is a step or two away.
    std::array<std::array<std::uint8_t, 0x3F81>, 2> first_{};
};

}  // namespace distilld::models
