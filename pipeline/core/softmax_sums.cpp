#include "pipeline/core/softmax_sums.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

namespace distilld {
namespace {

constexpr std::size_t kLanes = 4;
using Doubles = double __attribute__((vector_size(kLanes * sizeof(double))));
using Longs = std::int64_t __attribute__((vector_size(kLanes * sizeof(double))));
using Floats = float __attribute__((vector_size(kLanes * sizeof(float))));

/// Below this, the result would be subnormal and counts as 0.
constexpr double kSmallest = -708.0;

/// e^x for x ≤ 0. Takes a reference, because code for other targets passes vectors differently.
[[gnu::always_inline]] inline void raise(Doubles& x) {
    constexpr double kLog2E = 1.4426950408889634;
    constexpr double kLn2High = 6.93145751953125e-1;  // its low bits are 0: a product with n is exact
    constexpr double kLn2Low = 1.42860682030941723212e-6;
    constexpr double kRounder = 6755399441055744.0;  // 1.5·2^52: adding it rounds to a whole number
    const Longs gone = x < kSmallest;
    const Doubles in_range = reinterpret_cast<Doubles>(reinterpret_cast<Longs>(x) & ~gone);
    const Doubles shifted = in_range * kLog2E + kRounder;
    const Doubles n = shifted - kRounder;
    const Doubles r = (in_range - n * kLn2High) - n * kLn2Low;
    // Taylor to the 13th power: |r| is at most ln 2 / 2.
    Doubles p = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    // Moves n from the low bits of `shifted` into the exponent.
    const Longs scaled = reinterpret_cast<Longs>(p) + (reinterpret_cast<Longs>(shifted) << 52);
    x = reinterpret_cast<Doubles>(scaled & ~gone);
}

/// Loads four logits from `at` on, minus max; −inf beyond the end.
[[gnu::always_inline]] inline void load(std::span<const float> logits, std::size_t at, double max, Doubles& x) {
    Floats four{};
    if (at + kLanes <= logits.size()) {
        std::memcpy(&four, logits.data() + at, sizeof four);
    } else {
        four -= std::numeric_limits<float>::infinity();
        if (at < logits.size()) {
            std::memcpy(&four, logits.data() + at, (logits.size() - at) * sizeof(float));
        }
    }
    x = __builtin_convertvector(four, Doubles) - max;
}

[[gnu::always_inline]] inline double sum(const Doubles& a, const Doubles& b) {
    const Doubles both = a + b;
    return (both[0] + both[1]) + (both[2] + both[3]);
}

[[gnu::always_inline]] inline double add_masses(std::span<const float> logits, double max) {
    Doubles first{};
    Doubles second{};
    for (std::size_t at = 0; at < logits.size(); at += 2 * kLanes) {
        Doubles x;
        Doubles y;
        load(logits, at, max, x);
        load(logits, at + kLanes, max, y);
        raise(x);
        raise(y);
        first += x;
        second += y;
    }
    return sum(first, second);
}

[[gnu::always_inline]] inline WeightedMasses add_weighted(std::span<const float> logits, double max) {
    Doubles total{};
    Doubles weighted{};
    for (std::size_t at = 0; at < logits.size(); at += kLanes) {
        Doubles x;
        load(logits, at, max, x);
        Doubles mass = x;
        raise(mass);
        total += mass;
        // 0 · −inf is a NaN.
        const Longs none = mass == 0.0;
        weighted += reinterpret_cast<Doubles>(reinterpret_cast<Longs>(x * mass) & ~none);
    }
    const Doubles zero{};
    return {sum(total, zero), sum(weighted, zero)};
}

[[gnu::always_inline]] inline void each_mass(std::span<const float> logits, double max, double* masses) {
    for (std::size_t at = 0; at < logits.size(); at += kLanes) {
        Doubles x;
        load(logits, at, max, x);
        raise(x);
        const std::size_t count = at + kLanes <= logits.size() ? kLanes : logits.size() - at;
        std::memcpy(masses + at, &x, count * sizeof(double));
    }
}

[[gnu::always_inline]] inline float max_of(std::span<const float> logits) {
    constexpr std::size_t kWays = 32;
    std::array<float, kWays> best;
    best.fill(-std::numeric_limits<float>::infinity());
    std::size_t at = 0;
    for (; at + kWays <= logits.size(); at += kWays) {
        for (std::size_t i = 0; i < kWays; ++i) {
            best[i] = logits[at + i] > best[i] ? logits[at + i] : best[i];
        }
    }
    for (; at < logits.size(); ++at) {
        best[0] = logits[at] > best[0] ? logits[at] : best[0];
    }
    float most = best[0];
    for (const float one : best) {
        most = one > most ? one : most;
    }
    return most;
}

// The same for wider registers, without fused multiply-add, so the bits are the same.
#if defined(__x86_64__)
__attribute__((target("avx2"))) double add_masses_avx2(std::span<const float> logits, double max) {
    return add_masses(logits, max);
}
__attribute__((target("avx2"))) WeightedMasses add_weighted_avx2(std::span<const float> logits, double max) {
    return add_weighted(logits, max);
}
__attribute__((target("avx2"))) void each_mass_avx2(std::span<const float> logits, double max, double* masses) {
    each_mass(logits, max, masses);
}
__attribute__((target("avx2"))) float max_of_avx2(std::span<const float> logits) {
    return max_of(logits);
}
bool has_avx2() {
    static const bool has = __builtin_cpu_supports("avx2") != 0;
    return has;
}
#endif

}  // namespace

double sum_of_masses(std::span<const float> logits, float max) noexcept {
#if defined(__x86_64__)
    if (has_avx2()) {
        return add_masses_avx2(logits, max);
    }
#endif
    return add_masses(logits, max);
}

WeightedMasses weighted_masses(std::span<const float> logits, float max) noexcept {
#if defined(__x86_64__)
    if (has_avx2()) {
        return add_weighted_avx2(logits, max);
    }
#endif
    return add_weighted(logits, max);
}

void write_masses(std::span<const float> logits, float max, std::span<double> masses) noexcept {
#if defined(__x86_64__)
    if (has_avx2()) {
        each_mass_avx2(logits, max, masses.data());
        return;
    }
#endif
    each_mass(logits, max, masses.data());
}

float largest(std::span<const float> logits) noexcept {
#if defined(__x86_64__)
    if (has_avx2()) {
        return max_of_avx2(logits);
    }
#endif
    return max_of(logits);
}

}  // namespace distilld
