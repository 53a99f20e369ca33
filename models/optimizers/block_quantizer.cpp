#include "models/optimizers/block_quantizer.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace distilld::models {
namespace {

constexpr int kDecades = 7;

std::vector<float> map_values(bool is_signed) {
    std::vector<float> values{0.0F, 1.0F};
    for (int decade = 0; decade < kDecades; ++decade) {
        const double scale = std::pow(10.0, decade - (kDecades - 1));
        const int count = 1 << (is_signed ? decade : decade + 1);
        // The middle of each of `count` equal parts of [0.1, 1].
        for (int part = 0; part < count; ++part) {
            const double middle = 0.1 + 0.9 * (part + 0.5) / count;
            values.push_back(static_cast<float>(scale * middle));
            if (is_signed) {
                values.push_back(static_cast<float>(-scale * middle));
            }
        }
    }
    std::ranges::sort(values);
    return values;
}

std::size_t upper_half(float magnitude) {
    return std::bit_cast<std::uint32_t>(magnitude) >> 16U;
}

}  // namespace

DynamicMap::DynamicMap(bool is_signed) {
    std::ranges::copy(map_values(is_signed), values_.begin());
    for (std::size_t i = 0; i < middles_.size(); ++i) {
        middles_[i] = static_cast<float>((static_cast<double>(values_[i]) + values_[i + 1]) / 2);
    }
    for (std::size_t half = 0; half < first_[0].size(); ++half) {
        const auto magnitude = std::bit_cast<float>(static_cast<std::uint32_t>(half << 16U));
        first_[0][half] = nearest(magnitude);
        // The search goes down from the smallest magnitude that begins with these bits: the code only gets smaller.
        first_[1][half] = nearest(-magnitude);
    }
}

std::uint8_t DynamicMap::nearest(float number) const noexcept {
    return static_cast<std::uint8_t>(std::ranges::lower_bound(middles_, number) - middles_.begin());
}

std::uint8_t DynamicMap::code(float number) const noexcept {
    const bool negative = number < 0;
    const std::size_t half = std::min(upper_half(std::abs(number)), first_[0].size() - 1);
    std::size_t found = first_[negative ? 1 : 0][half];
    if (negative) {
        while (found > 0 && number <= middles_[found - 1]) {
            --found;
        }
    } else {
        while (found < middles_.size() && number > middles_[found]) {
            ++found;
        }
    }
    // Only numbers next to 0 can round to 0 and lose their sign.
    if (negative && values_[found] == 0.0F && found > 0) {
        --found;
    }
    return static_cast<std::uint8_t>(found);
}

}  // namespace distilld::models
