#pragma once

#include <cstdint>
#include <span>

#include "pipeline/core/micro_batch.hpp"

namespace distilld::models {

/// Turns a teacher's top-k log-probabilities at temperature 1 into the k + 1 bucket probabilities of distill_loss() at
/// temperature T, one row at a time. Without torch, because the staging thread must not start a thread team.
///
/// Top-k rows at T = 1 lack what T ≠ 1 needs: the distribution of the mass outside the k. Approximation: it is spread
/// evenly over the V − k others. The tail's unnormalised mass at T is then (V − k)·(p_tail / (V − k))^(1/T), and token
/// k's is p_k^(1/T); the buckets are normalised together. An even spread has the largest entropy, so for T > 1 the tail
/// is over-estimated, never under-estimated (x^(1/T) is concave). The student's side of the tail is its true tempered
/// mass. At T = 1 nothing is approximated: the loss is exactly the KL of the bucketed distributions.
///
/// `log_tail`: log of the mass outside the k; kUnknownTail = 1 − Σp, at least 0. If k covers the vocabulary, the tail
/// is 0. An entry of −inf has probability 0. `probabilities` has the size of `log_probabilities`. Returns false if the
/// row has NaN, +inf or no mass; the outputs are then unspecified.
struct TopkRow {
    float tail = 0;              ///< probability of the tail
    float negative_entropy = 0;  ///< Σ p·log p over all k + 1 buckets
};

bool temper_topk_row(std::span<const float> log_probabilities, float log_tail, std::int64_t vocabulary_size,
                     double temperature, std::span<float> probabilities, TopkRow& row);

}  // namespace distilld::models
