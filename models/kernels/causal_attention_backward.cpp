#include <algorithm>
#include <cstdint>
#include <limits>

#include "models/kernels/attention_scratch.hpp"
#include "models/kernels/causal_attention.hpp"
#include "models/kernels/parallel.hpp"

namespace distilld::kernels {

using torch::Tensor;

#ifdef DISTILLD_BF16

namespace {

/// Queries that are computed at once.
constexpr std::int64_t kBackwardQueries = 4 * kBlock;

DISTILLD_INLINE float widened_bits(std::uint16_t bits) {
    return std::bit_cast<float>(std::uint32_t{bits} << 16U);
}

/// Two rows of keys: their probabilities and the gradients of their scores, for `width` queries.
struct ScoreRows {
    const float* scores;     ///< two rows of kBackwardQueries
    const float* gradients;  ///< the same, of probabilities
    const float* log_sums;
    const float* deltas;
    std::int64_t ahead;  ///< position of the first query − that of the first key
    std::int64_t width;
    float scale;
    std::uint16_t* probabilities;  ///< two rows of `stride`
    std::uint16_t* out;            ///< the same
    std::int64_t stride;
    Pair* out_pairs;
};

DISTILLD_BF16 void differentiate(const ScoreRows& rows) {
    const float scale = rows.scale;
    const std::int64_t stride = rows.stride;
    const auto ahead = static_cast<std::int32_t>(rows.ahead);
    const auto width = static_cast<std::int32_t>(rows.width);
    const float* __restrict scores = rows.scores;
    const float* __restrict gradients = rows.gradients;
    const float* __restrict log_sums = rows.log_sums;
    const float* __restrict deltas = rows.deltas;
    std::uint16_t* __restrict probabilities = rows.probabilities;
    std::uint16_t* __restrict upper_probabilities = rows.probabilities + stride;
    std::uint16_t* __restrict out = rows.out;
    std::uint16_t* __restrict upper_out = rows.out + stride;
    Pair* __restrict pairs = rows.out_pairs;
    for (std::int32_t i = 0; i < width; ++i) {
        const float lower_any = exponential(scores[i] * scale - log_sums[i]);
        const float upper_any = exponential(scores[i + kBackwardQueries] * scale - log_sums[i]);
        const float lower = ahead + i >= 0 ? lower_any : 0.0F;
        const float upper = ahead + i >= 1 ? upper_any : 0.0F;
        const Pair lower_gradient = bits_of(lower * (gradients[i] - deltas[i]) * scale);
        const Pair upper_gradient = bits_of(upper * (gradients[i + kBackwardQueries] - deltas[i]) * scale);
        probabilities[i] = static_cast<std::uint16_t>(bits_of(lower));
        upper_probabilities[i] = static_cast<std::uint16_t>(bits_of(upper));
        out[i] = static_cast<std::uint16_t>(lower_gradient);
        upper_out[i] = static_cast<std::uint16_t>(upper_gradient);
        pairs[i] = lower_gradient | upper_gradient << 16U;
    }
}

DISTILLD_BF16 float dot(const std::uint16_t* left, const std::uint16_t* right, std::int64_t size) {
    return lane_sum<float>(size,
                           [left, right](std::int64_t i) { return widened_bits(left[i]) * widened_bits(right[i]); });
}

DISTILLD_BF16 void narrow_rows(const float* from, std::int64_t from_stride, std::int64_t rows, std::int64_t size,
                               std::uint16_t* out, std::int64_t out_stride) {
    for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t i = 0; i < size; ++i) {
            out[row * out_stride + i] = static_cast<std::uint16_t>(bits_of(from[row * from_stride + i]));
        }
    }
}

/// The backward pass of one thread, for a head of keys at a time.
class AttentionBackward {
  public:
    AttentionBackward(const AttentionSizes& sizes, Bf16Instructions instructions)
        : sizes_(sizes), products_(instructions), scratch_(bytes(sizes)) {
        const std::int64_t rows = sizes.padded_length * sizes.padded_size;
        const std::int64_t columns = sizes.padded_size * sizes.stride;
        keys_ = scratch_.take<std::uint16_t>(rows);
        values_ = scratch_.take<std::uint16_t>(rows);
        keys_transposed_ = scratch_.take<std::uint16_t>(columns);
        queries_turned_ = scratch_.take<Pair>(columns / 2);
        gradients_turned_ = scratch_.take<Pair>(columns / 2);
        queries_ = scratch_.take<Pair>(rows / 2);
        gradients_ = scratch_.take<Pair>(rows / 2);
        of_keys_ = scratch_.take<float>(rows);
        of_values_ = scratch_.take<float>(rows);
        of_queries_ = scratch_.take<float>(columns);
        log_sums_ = scratch_.take<float>(sizes.padded_length);
        deltas_ = scratch_.take<float>(sizes.padded_length);
        ones_ = scratch_.take<float>(sizes.padded_length);
        std::fill_n(ones_, sizes.padded_length, 1.0F);
        scores_ = scratch_.take<float>(kBlock * kBackwardQueries);
        score_gradients_ = scratch_.take<float>(kBlock * kBackwardQueries);
        probabilities_ = scratch_.take<std::uint16_t>(kBlock * sizes.stride);
        slopes_ = scratch_.take<std::uint16_t>(kBlock * sizes.stride);
        slope_pairs_ = scratch_.take<Pair>(kBlock / 2 * kBackwardQueries);
    }

    void take_keys(const Bf16Rows& keys, const Bf16Rows& values) {
        copy_padded(keys, sizes_.padded_length, sizes_.padded_size, keys_);
        copy_padded(values, sizes_.padded_length, sizes_.padded_size, values_);
        transpose_rows(keys, sizes_, queries_turned_, keys_transposed_);
    }

    void take_queries(const Bf16Rows& queries, const Bf16Rows& gradients, const Bf16Rows& out, const float* log_sums) {
        pair_columns(queries, sizes_.padded_length, sizes_.padded_size, queries_turned_, sizes_.stride);
        pair_columns(gradients, sizes_.padded_length, sizes_.padded_size, gradients_turned_, sizes_.stride);
        pair_rows(queries, sizes_.padded_length, sizes_.padded_size, queries_);
        pair_rows(gradients, sizes_.padded_length, sizes_.padded_size, gradients_);
        for (std::int64_t i = 0; i < sizes_.padded_length; ++i) {
            const bool inside = i < sizes_.length;
            log_sums_[i] = inside ? log_sums[i] : std::numeric_limits<float>::infinity();
            deltas_[i] = inside ? dot(out.from(i).data, gradients.from(i).data, sizes_.size) : 0.0F;
        }
    }

    /// `adds`: the gradients of keys and values to those of another head of queries.
    void multiply(bool adds) const {
        for (std::int64_t key = 0; key < sizes_.padded_length; key += kBlock) {
            for (std::int64_t query = key; query < sizes_.padded_length; query += kBackwardQueries) {
                one_block(key, query, std::min(kBackwardQueries, sizes_.padded_length - query));
            }
            const std::int64_t size = sizes_.padded_size;
            const std::int64_t queries = sizes_.padded_length - key;
            products_.multiply({probabilities_ + key, sizes_.stride, gradients_ + key / 2 * size, size,
                                of_values_ + key * size, size, kBlock, size, queries, adds});
            products_.multiply({slopes_ + key, sizes_.stride, queries_ + key / 2 * size, size, of_keys_ + key * size,
                                size, kBlock, size, queries, adds});
        }
    }

    void write_queries(std::uint16_t* out, std::int64_t stride) const {
        write_transposed(of_queries_, sizes_.stride, ones_, sizes_.size, sizes_.length, out, stride);
    }

    void write_keys(std::uint16_t* keys, std::int64_t key_stride, std::uint16_t* values,
                    std::int64_t value_stride) const {
        narrow_rows(of_keys_, sizes_.padded_size, sizes_.length, sizes_.size, keys, key_stride);
        narrow_rows(of_values_, sizes_.padded_size, sizes_.length, sizes_.size, values, value_stride);
    }

  private:
    static std::int64_t bytes(const AttentionSizes& sizes) {
        const std::int64_t rows = sizes.padded_length * sizes.padded_size;
        const std::int64_t columns = sizes.padded_size * sizes.stride;
        constexpr std::int64_t kRest = kBlock * kBackwardQueries * 16 + 64 * 20;
        return rows * 16 + columns * 10 + sizes.padded_length * 12 + kBlock * sizes.stride * 4 + kRest;
    }

    void one_block(std::int64_t key, std::int64_t query, std::int64_t width) const {
        const std::int64_t size = sizes_.padded_size;
        products_.multiply({keys_ + key * size, size, queries_turned_ + query, sizes_.stride, scores_, kBackwardQueries,
                            kBlock, width, size, false});
        products_.multiply({values_ + key * size, size, gradients_turned_ + query, sizes_.stride, score_gradients_,
                            kBackwardQueries, kBlock, width, size, false});
        for (std::int64_t row = 0; row < kBlock; row += 2) {
            differentiate({scores_ + row * kBackwardQueries, score_gradients_ + row * kBackwardQueries,
                           log_sums_ + query, deltas_ + query, query - key - row, width, sizes_.scale,
                           probabilities_ + row * sizes_.stride + query, slopes_ + row * sizes_.stride + query,
                           sizes_.stride, slope_pairs_ + row / 2 * kBackwardQueries});
        }
        products_.multiply({keys_transposed_ + key, sizes_.stride, slope_pairs_, kBackwardQueries, of_queries_ + query,
                            sizes_.stride, size, width, kBlock, key > 0});
    }

    const AttentionSizes& sizes_;
    Bf16Products products_;
    Scratch scratch_;
    std::uint16_t* keys_;             ///< [length, size]
    std::uint16_t* values_;           ///< [length, size]
    std::uint16_t* keys_transposed_;  ///< [size, length]
    Pair* queries_turned_;            ///< [size / 2, length]
    Pair* gradients_turned_;          ///< [size / 2, length]
    Pair* queries_;                   ///< [length / 2, size]
    Pair* gradients_;                 ///< [length / 2, size]
    float* of_keys_;                  ///< [length, size]
    float* of_values_;                ///< [length, size]
    float* of_queries_;               ///< [size, length]
    float* log_sums_;                 ///< [length]
    float* deltas_;                   ///< [length] Σ out · gradient
    float* ones_;                     ///< [length]
    float* scores_;                   ///< [kBlock keys, kBackwardQueries]
    float* score_gradients_;          ///< [kBlock keys, kBackwardQueries] of probabilities
    std::uint16_t* probabilities_;    ///< [kBlock keys, length]
    std::uint16_t* slopes_;           ///< [kBlock keys, length] gradients of scores
    Pair* slope_pairs_;               ///< [kBlock / 2 keys, kBackwardQueries]
};

}  // namespace

AttentionGradients causal_attention_backward(const Tensor& gradient, const Tensor& query, const Tensor& key,
                                             const Tensor& value, const AttendedHeads& attended, double scale,
                                             Bf16Instructions instructions) {
    const AttentionSizes sizes(query, key, scale);
    const Tensor along = gradient.stride(3) == 1 ? gradient : gradient.contiguous();
    AttentionGradients out{empty_heads(query), empty_heads(key), empty_heads(value)};
    const auto* const log_sums = static_cast<const float*>(attended.log_sums.const_data_ptr());
    const std::int64_t times = sizes.heads / sizes.key_heads;
    in_parallel(sizes.batch * sizes.key_heads, grain_of(sizes.length * sizes.length),
                [&](std::int64_t begin, std::int64_t end) {
                    AttentionBackward backward(sizes, instructions);
                    for (std::int64_t i = begin; i < end; ++i) {
                        const std::int64_t row = i / sizes.key_heads;
                        const std::int64_t key_head = i % sizes.key_heads;
                        backward.take_keys(rows_of(key, row, key_head), rows_of(value, row, key_head));
                        for (std::int64_t j = 0; j < times; ++j) {
                            const std::int64_t head = key_head * times + j;
                            backward.take_queries(rows_of(query, row, head), rows_of(along, row, head),
                                                  rows_of(attended.out, row, head),
                                                  log_sums + (row * sizes.heads + head) * sizes.length);
                            backward.multiply(j > 0);
                            backward.write_queries(writable(out.query, row, head), out.query.stride(2));
                        }
                        backward.write_keys(writable(out.key, row, key_head), out.key.stride(2),
                                            writable(out.value, row, key_head), out.value.stride(2));
                    }
                });
    return out;
}

#else

AttentionGradients causal_attention_backward(const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                             const AttendedHeads&, double, Bf16Instructions) {
    TORCH_CHECK(false, "attention has no kernel for this processor");
}

#endif

}  // namespace distilld::kernels
