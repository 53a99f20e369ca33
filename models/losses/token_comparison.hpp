#pragma once

#include "models/losses/distill_loss.hpp"

namespace distilld::models {

/// Sums over rows, [] fp64 on their device.
struct TokenComparison {
    /// Rows in which the student's most likely token is the teacher's, or the most likely of its k.
    torch::Tensor agreeing;
    /// Σ min(p, q): the probability that the teacher accepts a token that the student draws, in speculative decoding
    /// (Leviathan et al. 2023, arXiv 2211.17192, corollary 3.6). With top-k targets, the sum of the k alone.
    torch::Tensor accepted;
};

/// `logits` [n, V]: the student's. `rows`: top-k targets, or `teacher_logits` [n, V]. `temperature`: of both, and that
/// of top-k targets already. Needs 16 MiB beside the logits on the CPU, and three times their size in fp32 elsewhere.
TokenComparison compare_tokens(const torch::Tensor& logits, const DistillTargets& rows, double temperature);

}  // namespace distilld::models
