#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string_view>

#include "models/network/gradient_order.hpp"

/// Dropout with masks that depend on numbers, never on a generator's state: a resumed run, or one that computes a block
/// twice (gradient checkpointing), draws the same masks.
namespace distilld::models {

/// Dropout at one place of a network, while the thread computes a micro-batch (MicroBatchScope).
class Dropout {
  public:
    /// `rate` in [0, 1); `seed` outlives this. Two places of a network have different names.
    Dropout(const std::uint64_t& seed, double rate, std::string_view place);

    /// Whether it is active now, in this thread.
    [[nodiscard]] bool active() const noexcept { return rate_ > 0 && MicroBatchScope::current() != nullptr; }

    /// Multiplies `input` by a mask of dropout_mask(). `part` distinguishes several tensors in one pass.
    [[nodiscard]] torch::Tensor forward(const torch::Tensor& input, std::uint64_t part = 0) const;

  private:
    const std::uint64_t* seed_;
    double rate_;
    std::uint64_t place_;
};

/// A number for each (seed, micro-batch, place in the network).
[[nodiscard]] std::uint64_t dropout_key(std::uint64_t seed, std::uint64_t micro_batch, std::uint64_t place) noexcept;

/// FNV-1a: the same number for the same name on every machine.
[[nodiscard]] std::uint64_t number_of_name(std::string_view name) noexcept;

/// Zeros with probability `rate` in [0, 1), else 1 / (1 − rate), in the shape, dtype and on the device of `like`.
/// Element i (row-major) is a function of key and i, the same on every device: the upper half of SplitMix64's output
/// number i (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014) is compared with rate · 2³².
[[nodiscard]] torch::Tensor dropout_mask(const torch::Tensor& like, double rate, std::uint64_t key);

/// The 32-bit numbers of dropout_mask() for devices other than the CPU, as int64.
[[nodiscard]] torch::Tensor drawn_by_tensors(std::int64_t count, std::uint64_t key, const torch::Device& device);

}  // namespace distilld::models
