#pragma once

#include <cstdint>
#include <span>

#include "pipeline/core/micro_batch.hpp"

namespace distilld::models {

/// Turns the top-k log-probabilities that a teacher gave at temperature 1 into the k + 1 bucket probabilities of
/// distill_loss() at temperature T, one row at a time, without torch (it runs on the staging thread, which must not
/// start a thread team of its own).
///
/// A top-k cut at T = 1 does not hold what T ≠ 1 needs: how the mass outside the k spreads over its tokens.
/// Approximation: evenly over the V − k others. Their unnormalised mass at T is then
/// (V − k)·(p_tail / (V − k))^(1/T), that of token k is p_k^(1/T), and the buckets are normalised together. Even is
/// the spread of largest entropy, so for T > 1 the tail is over-estimated, never under-estimated (x^(1/T) is concave).
/// The student's side of the tail is its true tempered mass. At T = 1 nothing is approximated: the loss is exactly the
/// KL of the bucketed distributions.
///
/// `log_tail`: log of the mass outside the k; kUnknownTail = 1 − Σp, at least 0. Where k covers the vocabulary the tail
/// is 0. An entry of −inf has probability 0. `probabilities` has the size of `log_probabilities`.
/// False when the row holds NaN, +inf or no mass at all; the outputs are unspecified then.
struct TopkRow {
    float tail = 0;              ///< probability of the tail
    float negative_entropy = 0;  ///< Σ p·log p over all k + 1
};

bool temper_topk_row(std::span<const float> log_probabilities, float log_tail, std::int64_t vocabulary_size,
                     double temperature, std::span<float> probabilities, TopkRow& row);

}  // namespace distilld::models
