#include "models/kernels/causal_attention.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "models/kernels/attention_scratch.hpp"
#include "models/kernels/parallel.hpp"

namespace distilld::kernels {

using torch::Tensor;

#ifdef DISTILLD_BF16

namespace {

/// Queries that are computed at once: more of them share the keys, but see more keys that come later.
constexpr std::int64_t kForwardQueries = 2 * kBlock;

/// Softmax over the rows of `scores` [keys, kForwardQueries], whose columns are `width` queries from position `first`
/// on. Writes probabilities times `sums`, and those sums' inverses and logarithms.
struct Softmax {
    float* scores;
    std::int64_t keys;
    std::int64_t first;
    std::int64_t width;
    float scale;
    Pair* probabilities;  ///< [keys / 2, kForwardQueries]
    float* maxima;        ///< [kForwardQueries]
    float* inverse_sums;  ///< [kForwardQueries]
    float* log_sums;      ///< [kForwardQueries]
};

DISTILLD_BF16 void hide_later_keys(const Softmax& of) {
    for (std::int64_t key = of.first; key < of.keys; ++key) {
        std::fill_n(of.scores + key * kForwardQueries, std::min(key - of.first, of.width),
                    -std::numeric_limits<float>::infinity());
    }
}

DISTILLD_BF16 void find_maxima(const float* scores, std::int64_t keys, std::int64_t width, float* __restrict maxima) {
    std::fill_n(maxima, width, -std::numeric_limits<float>::infinity());
    for (std::int64_t key = 0; key < keys; ++key) {
        const float* row = scores + key * kForwardQueries;
        for (std::int64_t i = 0; i < width; ++i) {
            maxima[i] = row[i] > maxima[i] ? row[i] : maxima[i];
        }
    }
}

DISTILLD_BF16 void exponentiate(const float* __restrict scores, std::int64_t width, float scale,
                                const float* __restrict maxima, Pair* __restrict out, float* __restrict sums) {
    for (std::int64_t i = 0; i < width; ++i) {
        const float lower = exponential((scores[i] - maxima[i]) * scale);
        const float upper = exponential((scores[i + kForwardQueries] - maxima[i]) * scale);
        sums[i] = (sums[i] + lower) + upper;
        out[i] = bits_of(lower) | bits_of(upper) << 16U;
    }
}

void softmax(const Softmax& of) {
    hide_later_keys(of);
    find_maxima(of.scores, of.keys, of.width, of.maxima);
    float* sums = of.inverse_sums;
    std::fill_n(sums, of.width, 0.0F);
    for (std::int64_t key = 0; key < of.keys; key += 2) {
        exponentiate(of.scores + key * kForwardQueries, of.width, of.scale, of.maxima,
                     of.probabilities + key / 2 * kForwardQueries, sums);
    }
    for (std::int64_t i = 0; i < of.width; ++i) {
        of.log_sums[i] = of.maxima[i] * of.scale + std::log(sums[i]);
        of.inverse_sums[i] = 1 / sums[i];
    }
}

/// The forward pass of one thread, for kForwardQueries positions of a head at a time.
class AttentionForward {
  public:
    AttentionForward(const AttentionSizes& sizes, Bf16Instructions instructions)
        : sizes_(sizes), products_(instructions), scratch_(bytes(sizes)) {
        queries_turned_ = scratch_.take<Pair>(sizes.padded_size / 2 * kForwardQueries);
        scores_ = scratch_.take<float>(sizes.padded_length * kForwardQueries);
        probabilities_ = scratch_.take<Pair>(sizes.padded_length / 2 * kForwardQueries);
        mixed_ = scratch_.take<float>(sizes.padded_size * kForwardQueries);
        maxima_ = scratch_.take<float>(kForwardQueries);
        inverse_sums_ = scratch_.take<float>(kForwardQueries);
        log_sums_ = scratch_.take<float>(kForwardQueries);
    }

    /// The queries from position `first` on. `keys` [length, size], `values_transposed` [size, length].
    void run(const Bf16Rows& queries, std::int64_t first, const std::uint16_t* keys,
             const std::uint16_t* values_transposed, std::uint16_t* out, std::int64_t out_stride, float* log_sums) {
        const std::int64_t size = sizes_.padded_size;
        const std::int64_t width = std::min(kForwardQueries, sizes_.padded_length - first);
        const std::int64_t seen = first + width;
        pair_columns(queries.from(first), width, size, queries_turned_, kForwardQueries);
        products_.multiply({keys, size, queries_turned_, kForwardQueries, scores_, kForwardQueries, seen, width, size,
                            /*adds=*/false});
        softmax({scores_, seen, first, width, sizes_.scale, probabilities_, maxima_, inverse_sums_, log_sums_});
        products_.multiply({values_transposed, sizes_.stride, probabilities_, kForwardQueries, mixed_, kForwardQueries,
                            size, width, seen, /*adds=*/false});
        const std::int64_t written = std::min(width, sizes_.length - first);
        write_transposed(mixed_, kForwardQueries, inverse_sums_, sizes_.size, written, out + first * out_stride,
                         out_stride);
        std::copy_n(log_sums_, written, log_sums + first);
    }

  private:
    static std::int64_t bytes(const AttentionSizes& sizes) {
        return (sizes.padded_size * 6 + sizes.padded_length * 6 + 3 * 4) * kForwardQueries;
    }

    const AttentionSizes& sizes_;
    Bf16Products products_;
    Scratch scratch_;
    Pair* queries_turned_;  ///< [size / 2, kForwardQueries]
    float* scores_;         ///< [length keys, kForwardQueries]
    Pair* probabilities_;   ///< [length / 2 keys, kForwardQueries]
    float* mixed_;          ///< [size, kForwardQueries]
    float* maxima_;
    float* inverse_sums_;
    float* log_sums_;
};

}  // namespace

bool takes_causal_attention(const Tensor& query, const Tensor& key, const Tensor& value) {
    constexpr std::int64_t kMaxSize = 256;
    const auto fits = [](const Tensor& heads) {
        return heads.is_cpu() && heads.scalar_type() == torch::kBFloat16 && heads.stride(3) == 1;
    };
    return bf16_instructions() != Bf16Instructions::none && fits(query) && fits(key) && fits(value) &&
           query.size(3) <= kMaxSize && query.numel() > 0;
}

AttendedHeads causal_attention(const Tensor& query, const Tensor& key, const Tensor& value, double scale,
                               Bf16Instructions instructions) {
    const AttentionSizes sizes(query, key, scale);
    AttendedHeads out{empty_heads(query), torch::empty({sizes.batch, sizes.heads, sizes.length}, torch::kFloat)};
    const std::int64_t pairs = sizes.batch * sizes.key_heads;
    Tensor keys = torch::empty({pairs, sizes.padded_length, sizes.padded_size}, query.options());
    Tensor values = torch::empty({pairs, sizes.padded_size, sizes.stride}, query.options());
    auto* const key_data = static_cast<std::uint16_t*>(keys.mutable_data_ptr());
    auto* const value_data = static_cast<std::uint16_t*>(values.mutable_data_ptr());
    in_parallel(pairs, grain_of(sizes.length * sizes.size), [&](std::int64_t begin, std::int64_t end) {
        Scratch scratch(sizes.padded_size * sizes.stride * 2);
        Pair* turned = scratch.take<Pair>(sizes.padded_size / 2 * sizes.stride);
        for (std::int64_t i = begin; i < end; ++i) {
            copy_padded(rows_of(key, i / sizes.key_heads, i % sizes.key_heads), sizes.padded_length, sizes.padded_size,
                        key_data + i * keys.stride(0));
            transpose_rows(rows_of(value, i / sizes.key_heads, i % sizes.key_heads), sizes, turned,
                           value_data + i * values.stride(0));
        }
    });
    const std::int64_t blocks = (sizes.length + kForwardQueries - 1) / kForwardQueries;
    auto* const log_sums = out.log_sums.mutable_data_ptr<float>();
    in_parallel(sizes.batch * sizes.heads * blocks, grain_of(kForwardQueries * sizes.length),
                [&](std::int64_t begin, std::int64_t end) {
                    AttentionForward forward(sizes, instructions);
                    for (std::int64_t i = begin; i < end; ++i) {
                        const std::int64_t row = i / blocks / sizes.heads;
                        const std::int64_t head = i / blocks % sizes.heads;
                        const std::int64_t pair = row * sizes.key_heads + head * sizes.key_heads / sizes.heads;
                        forward.run(rows_of(query, row, head), i % blocks * kForwardQueries,
                                    key_data + pair * keys.stride(0), value_data + pair * values.stride(0),
                                    writable(out.out, row, head), out.out.stride(2),
                                    log_sums + (row * sizes.heads + head) * sizes.length);
                    }
                });
    return out;
}

#else

bool takes_causal_attention(const Tensor&, const Tensor&, const Tensor&) {
    return false;
}

AttendedHeads causal_attention(const Tensor&, const Tensor&, const Tensor&, double, Bf16Instructions) {
    TORCH_CHECK(false, "attention has no kernel for this processor");
}

#endif

}  // namespace distilld::kernels
