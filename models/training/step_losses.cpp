#include "models/training/step_losses.hpp"

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace distilld::models {

void StepLosses::add(const DistillLossScalars& of_micro_batch) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor more = torch::stack({of_micro_batch.loss, of_micro_batch.kd, of_micro_batch.ce});
    if (sums_.defined()) {
        sums_.add_(more);
    } else {
        sums_ = more;
    }
}

StepStats StepLosses::read(const torch::Tensor& gradient_norm) const {
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> parts{gradient_norm.reshape({1})};
    if (sums_.defined()) {
        parts.push_back(sums_);
    }
    const torch::Tensor read = torch::cat(parts).to(torch::kCPU);
    const std::span values(static_cast<const double*>(read.const_data_ptr()), static_cast<std::size_t>(read.numel()));
    StepStats stats;
    stats.grad_norm = values[0];
    if (values.size() > 1) {
        stats.loss_sum = values[1];
        stats.kd_sum = values[2];
        stats.ce_sum = values[3];
    }
    stats.finite = std::isfinite(stats.grad_norm) && std::isfinite(stats.loss_sum);
    return stats;
}

}  // namespace distilld::models
