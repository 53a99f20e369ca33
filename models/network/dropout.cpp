#include "models/network/dropout.hpp"

#include <torch/utils.h>

#include <cmath>

#include "models/kernels/parallel.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;

constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15ULL;
constexpr std::uint64_t kFirstFactor = 0xBF58476D1CE4E5B9ULL;
constexpr std::uint64_t kSecondFactor = 0x94D049BB133111EBULL;
constexpr std::int64_t kGrain = 32768;

std::uint64_t mixed(std::uint64_t z) noexcept {
    z = (z ^ (z >> 30U)) * kFirstFactor;
    z = (z ^ (z >> 27U)) * kSecondFactor;
    return z ^ (z >> 31U);
}

std::uint64_t drawn(std::uint64_t key, std::uint64_t index) noexcept {
    return mixed(key + (index + 1) * kStep) >> 32U;
}

/// z >> bits for an unsigned z.
Tensor shifted(const Tensor& z, std::int64_t bits) {
    return torch::bitwise_right_shift(z, bits).bitwise_and_((std::int64_t{1} << (64 - bits)) - 1);
}

std::int64_t wrapped(std::uint64_t number) noexcept {
    return static_cast<std::int64_t>(number);
}

std::uint64_t threshold_of(double rate) noexcept {
    return static_cast<std::uint64_t>(std::llround(rate * 4294967296.0));
}

}  // namespace

std::uint64_t dropout_key(std::uint64_t seed, std::uint64_t micro_batch, std::uint64_t place) noexcept {
    return mixed(mixed(mixed(seed + kStep) + micro_batch) + place);
}

Dropout::Dropout(const std::uint64_t& seed, double rate, std::string_view place)
    : seed_(&seed), rate_(rate), place_(number_of_name(place)) {}

Tensor Dropout::forward(const Tensor& input, std::uint64_t part) const {
    if (!active()) {
        return input;
    }
    return input * dropout_mask(input, rate_, dropout_key(*seed_, MicroBatchScope::current()->number(), place_ + part));
}

std::uint64_t number_of_name(std::string_view name) noexcept {
    std::uint64_t hash = 0xCBF29CE484222325ULL;
    for (const char c : name) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
    }
    return hash;
}

Tensor drawn_by_tensors(std::int64_t count, std::uint64_t key, const torch::Device& device) {
    Tensor z = torch::arange(1, count + 1, torch::TensorOptions().dtype(torch::kInt64).device(device));
    z.mul_(wrapped(kStep)).add_(wrapped(key));
    z.bitwise_xor_(shifted(z, 30)).mul_(wrapped(kFirstFactor));
    z.bitwise_xor_(shifted(z, 27)).mul_(wrapped(kSecondFactor));
    z.bitwise_xor_(shifted(z, 31));
    return shifted(z, 32);
}

Tensor dropout_mask(const Tensor& like, double rate, std::uint64_t key) {
    const torch::NoGradGuard no_grad;
    const std::uint64_t threshold = threshold_of(rate);
    const double kept = 1.0 / (1.0 - rate);
    const auto options = torch::TensorOptions().dtype(like.scalar_type()).device(like.device());
    if (!like.device().is_cpu()) {
        const Tensor numbers = drawn_by_tensors(like.numel(), key, like.device());
        return numbers.ge(static_cast<std::int64_t>(threshold)).to(like.scalar_type()).mul_(kept).view(like.sizes());
    }
    Tensor mask = torch::empty(like.sizes(), options);
    AT_DISPATCH_FLOATING_TYPES_AND(torch::kBFloat16, mask.scalar_type(), "dropout_mask", [&] {
        auto* out = mask.mutable_data_ptr<scalar_t>();
        const auto value = static_cast<scalar_t>(kept);
        const auto zero = static_cast<scalar_t>(0);
        kernels::in_parallel(mask.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) {
                out[i] = drawn(key, static_cast<std::uint64_t>(i)) >= threshold ? value : zero;
            }
        });
    });
    return mask;
}

}  // namespace distilld::models
