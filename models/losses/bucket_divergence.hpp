#pragma once

#include <torch/torch.h>

namespace distilld::models {

/// Least probability of the teacher that is reckoned with where its logarithm is weighed by the student, as its own
/// log.
inline constexpr double kLogOfMinTeacherProbability = -69.0775527898213705;  // of 1e-30

/// Divergence of each row's distribution q of the student from the teacher's p over some buckets (tokens, or k tokens
/// and all others), and its derivative; for 0 < beta <= 1, as TRL's GKDTrainer.generalized_jsd_loss has it (arXiv
/// 2306.13649 eq. 1):
///
///     beta = 1        D = Σ q·log(q / p)                                      reverse KL, m = p
///     0 < beta < 1    D = beta·Σ p·log(p / m) + (1 − beta)·Σ q·log(q / m),    m = beta·p + (1 − beta)·q
///
/// In either case, with w = 1 or 1 − beta and s = log(q / m),
///
///     dD/dz_v = q_v·w·(s_b − Σ q·s)    for a token v of bucket b, q = softmax(z),
///
/// because the terms in which m moves cancel. beta -> 0 gives 0, as D does: forward KL is not its limit but D / beta's.
/// Where p is below 1e-30 (a token that the teacher rules out, a tail of 0) it counts as 1e-30: such a bucket costs the
/// student up to 69 nats times its own mass instead of infinity.
///
/// `log_q` [n, b]: in log q, out w·(s − Σ q·s). `log_p` [n, b]: in log p, −inf included; used up. `q` [n, b] = exp of
/// log_q. Returns D [n, 1].
torch::Tensor bucket_divergence(torch::Tensor& log_q, torch::Tensor& log_p, const torch::Tensor& q, double beta);

}  // namespace distilld::models
