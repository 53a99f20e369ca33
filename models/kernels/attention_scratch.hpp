#pragma once

#include <torch/types.h>

#include <bit>
#include <cstdint>

#include "models/kernels/bf16_blocks.hpp"

#ifdef DISTILLD_BF16

/// What causal attention has in common forward and backward.
namespace distilld::kernels {

/// Between rows of scratch memory, so that a column of a block does not fall into one set of the cache.
inline constexpr std::int64_t kGap = 32;

[[nodiscard]] inline std::int64_t padded(std::int64_t size) {
    return (size + kBlock - 1) / kBlock * kBlock;
}

/// Aligned memory of one thread.
class Scratch {
  public:
    explicit Scratch(std::int64_t bytes) : memory_(at::empty({bytes}, at::kByte)) {}

    template <typename T>
    T* take(std::int64_t count) {
        auto* taken = reinterpret_cast<T*>(memory_.data_ptr<std::uint8_t>() + used_);
        used_ += (count * static_cast<std::int64_t>(sizeof(T)) + 63) / 64 * 64;
        TORCH_CHECK(used_ <= memory_.numel(), "scratch memory is too small");
        return taken;
    }

  private:
    torch::Tensor memory_;
    std::int64_t used_ = 0;
};

struct AttentionSizes {
    std::int64_t batch;
    std::int64_t heads;
    std::int64_t key_heads;
    std::int64_t length;
    std::int64_t size;
    std::int64_t padded_length;
    std::int64_t padded_size;
    std::int64_t stride;  ///< of a scratch row that holds one number per position
    float scale;

    AttentionSizes(const torch::Tensor& query, const torch::Tensor& key, double by)
        : batch(query.size(0)),
          heads(query.size(1)),
          key_heads(key.size(1)),
          length(query.size(2)),
          size(query.size(3)),
          padded_length(padded(length)),
          padded_size(padded(size)),
          stride(padded_length + kGap),
          scale(static_cast<float>(by)) {}
};

/// The positions of one head.
[[nodiscard]] inline Bf16Rows rows_of(const torch::Tensor& heads, std::int64_t batch, std::int64_t head) {
    const auto* data = static_cast<const std::uint16_t*>(heads.const_data_ptr());
    return {data + batch * heads.stride(0) + head * heads.stride(1), heads.stride(2), heads.size(2), heads.size(3)};
}

/// The same, writable.
[[nodiscard]] inline std::uint16_t* writable(torch::Tensor& heads, std::int64_t batch, std::int64_t head) {
    return static_cast<std::uint16_t*>(heads.mutable_data_ptr()) + batch * heads.stride(0) + head * heads.stride(1);
}

/// [B, heads, T, D] of that size, with positions before heads in memory.
[[nodiscard]] inline torch::Tensor empty_heads(const torch::Tensor& like) {
    return torch::empty({like.size(0), like.size(2), like.size(1), like.size(3)}, like.options()).transpose(1, 2);
}

DISTILLD_INLINE Pair bits_of(float value) {
    return std::bit_cast<std::uint16_t>(static_cast<__bf16>(value));
}

/// The left operand `from`ᵀ: [size, length] with rows of `sizes.stride`. `pairs` is scratch memory of half its size.
inline void transpose_rows(const Bf16Rows& from, const AttentionSizes& sizes, Pair* pairs, std::uint16_t* out) {
    pair_columns(from, sizes.padded_length, sizes.padded_size, pairs, sizes.stride);
    split_pairs(pairs, sizes.stride, sizes.padded_size / 2, sizes.padded_length, out, sizes.stride);
}

}  // namespace distilld::kernels

#endif
