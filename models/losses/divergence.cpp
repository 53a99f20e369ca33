#include "models/losses/divergence.hpp"

#include <cmath>

namespace distilld::models {
namespace {

using torch::Tensor;

Tensor reverse_kl(Tensor& log_q, Tensor& log_p, const Tensor& q, double /*parameter*/) {
    log_q.sub_(log_p.clamp_min_(kLogOfMinTeacherProbability));
    log_p.reset();
    Tensor mean = (q * log_q).sum(1, true);
    log_q.sub_(mean);
    return mean;
}

/// s = (1 − beta)·(log(q / m) − Σ q·log(q / m)): the terms from m's own change cancel.
Tensor jensen_shannon(Tensor& log_q, Tensor& log_p, const Tensor& q, double beta) {
    log_p.clamp_min_(kLogOfMinTeacherProbability);
    // Frees each tensor as early as possible: over a whole vocabulary these are the largest tensors of the program.
    Tensor log_m = log_p + (std::log(beta) - std::log1p(-beta));
    at::logaddexp_out(log_m, log_m, log_q);
    log_m.add_(std::log1p(-beta));
    log_q.sub_(log_m);
    log_p.sub_(log_m);
    const Tensor of_teacher = log_m.add_(log_p).exp_().mul_(log_p).sum(1, true);
    log_m.reset();
    log_p.reset();
    const Tensor mean = (q * log_q).sum(1, true);
    log_q.sub_(mean).mul_(1.0 - beta);
    return mean.mul(1.0 - beta).add_(of_teacher, beta);
}

}  // namespace

Divergence divergence_of_beta(double beta) noexcept {
    if (beta == 0.0) {
        return {};
    }
    return beta == 1.0 ? Divergence{reverse_kl} : Divergence{jensen_shannon, beta};
}

}  // namespace distilld::models
