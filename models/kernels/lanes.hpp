#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#define DISTILLD_INLINE [[gnu::always_inline]] inline

/// Loops over numbers with the same bits on every processor. No libtorch here.
namespace distilld::kernels {

/// Sums in this many lanes, whatever the processor's vectors hold.
inline constexpr std::int64_t kLanes = 16;

/// Adds lanes in pairs.
template <typename Number>
DISTILLD_INLINE Number pair_sum(std::array<Number, kLanes> lanes) {
    for (std::size_t width = kLanes / 2; width > 0; width /= 2) {
        for (std::size_t lane = 0; lane < width; ++lane) {
            lanes[lane] += lanes[lane + width];
        }
    }
    return lanes[0];
}

/// The sum of `term(i)` for i in [0, size): item i goes to lane i % kLanes, and lanes are added in pairs.
template <typename Number, typename Term>
DISTILLD_INLINE Number lane_sum(std::int64_t size, const Term& term) {
    std::array<Number, kLanes> lanes{};
    const std::int64_t whole = size - size % kLanes;
    for (std::int64_t i = 0; i < whole; i += kLanes) {
        for (std::int64_t lane = 0; lane < kLanes; ++lane) {
            lanes[static_cast<std::size_t>(lane)] += term(i + lane);
        }
    }
    for (std::int64_t i = whole; i < size; ++i) {
        lanes[static_cast<std::size_t>(i - whole)] += term(i);
    }
    return pair_sum(lanes);
}

/// The lanes as a vector, which compilers split into what the processor has.
template <typename Number>
using Lanes [[gnu::vector_size(kLanes * sizeof(Number))]] = Number;

/// lane_sum() of an array.
template <typename Number>
DISTILLD_INLINE Number array_sum(const Number* values, std::int64_t size) {
    Lanes<Number> lanes{};
    const std::int64_t whole = size - size % kLanes;
    for (std::int64_t i = 0; i < whole; i += kLanes) {
        Lanes<Number> more;
        std::memcpy(&more, values + i, sizeof(more));
        lanes += more;
    }
    std::array<Number, kLanes> sums{};
    std::memcpy(sums.data(), &lanes, sizeof(lanes));
    for (std::int64_t i = whole; i < size; ++i) {
        sums[static_cast<std::size_t>(i - whole)] += values[i];
    }
    return pair_sum(sums);
}

/// The largest value that is not NaN; −∞ if there is none.
template <typename Number>
DISTILLD_INLINE Number array_maximum(const Number* values, std::int64_t size) {
    constexpr Number kNothing = -std::numeric_limits<Number>::infinity();
    Lanes<Number> lanes = Lanes<Number>{} + kNothing;
    const std::int64_t whole = size - size % kLanes;
    for (std::int64_t i = 0; i < whole; i += kLanes) {
        Lanes<Number> more;
        std::memcpy(&more, values + i, sizeof(more));
        lanes = more > lanes ? more : lanes;
    }
    Number most = kNothing;
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        most = lanes[lane] > most ? lanes[lane] : most;
    }
    for (std::int64_t i = whole; i < size; ++i) {
        most = values[i] > most ? values[i] : most;
    }
    return most;
}

/// eˣ. For fp32: 2ⁿ·eʳ with |r| ≤ ln 2 / 2 and the polynomial of Cephes' expf; within 2 ulp, 0 below −87.3 and infinite
/// above 88.7.
DISTILLD_INLINE float exponential(float x) {
    constexpr float kLog2 = 1.44269504088896341F;
    // ln 2 in two parts: the product of the first with a small whole number is exact.
    constexpr float kLn2High = 0.693359375F;
    constexpr float kLn2Low = -2.12194440e-4F;
    // Adding and subtracting 1.5·2²³ rounds to a whole number.
    constexpr float kRound = 12582912.0F;
    // NaN becomes a number here: its conversion to a whole number would be undefined.
    const float bounded = x > -87.3F ? (x < 88.7F ? x : 88.7F) : -87.3F;
    const float n = (bounded * kLog2 + kRound) - kRound;
    const float r = (bounded - n * kLn2High) - n * kLn2Low;
    float p = 1.9875691500e-4F;
    p = p * r + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    const float e = (p * r) * r + r + 1.0F;
    // Two factors, since 2ⁿ alone is out of range for n = 128.
    const auto whole = static_cast<std::int32_t>(n);
    const std::int32_t half = whole >> 1;
    const auto power = [](std::int32_t of) { return std::bit_cast<float>((of + 127) << 23); };
    const float result = e * power(half) * power(whole - half);
    return x < -87.3F ? 0.0F : (x > 88.7F ? INFINITY : (x == x ? result : x));
}
DISTILLD_INLINE double exponential(double x) {
    return std::exp(x);
}

}  // namespace distilld::kernels
