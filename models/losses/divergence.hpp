#pragma once

#include <torch/types.h>

namespace distilld::models {

/// Smallest log-probability of the teacher in a divergence that weights it by the student.
inline constexpr double kLogOfMinTeacherProbability = -69.0775527898213705;  // of 1e-30

/// The divergence between each row's student distribution q and the teacher's p over buckets: the tokens, or k tokens
/// and all others. The loss adapts it to full logits, hidden states, top-k rows, temperatures and chunks.
struct Divergence {
    /// `log_q` [n, b]: in log q, out the slope s with which
    ///
    ///     dD/dz_v = q_v·s_b    for a token v of bucket b, q = softmax(z),
    ///
    /// that is s = dD/dq_b − Σ q·dD/dq. `log_p` [n, b]: in log p, may contain −inf; used up. `q` [n, b] = exp of log_q.
    /// Returns D [n, 1]. Any device, fp32 or fp64; does not wait. Null: forward KL, Σ p·log(p / q), which has its own
    /// kernels in distill_loss.cpp, because p / q loses precision that q − p keeps.
    torch::Tensor (*value_and_slope)(torch::Tensor& log_q, torch::Tensor& log_p, const torch::Tensor& q,
                                     double parameter) = nullptr;
    double parameter = 0;

    [[nodiscard]] bool is_forward_kl() const noexcept { return value_and_slope == nullptr; }
};

/// The divergence that training.beta selects, as in TRL's GKDTrainer.generalized_jsd_loss (arXiv 2306.13649 eq. 1):
///
///     beta = 0        D = Σ p·log(p / q)                                      forward KL
///     0 < beta < 1    D = beta·Σ p·log(p / m) + (1 − beta)·Σ q·log(q / m),    m = beta·p + (1 − beta)·q
///     beta = 1        D = Σ q·log(q / p)                                      reverse KL
///
/// The JSD goes to 0 with beta; forward KL is the limit of D / beta. If p is below 1e-30 (a token that the teacher
/// rules out, a tail of 0), reverse KL and JSD use 1e-30: such a bucket costs the student up to 69 nats times its own
/// mass instead of infinity.
[[nodiscard]] Divergence divergence_of_beta(double beta) noexcept;

}  // namespace distilld::models
