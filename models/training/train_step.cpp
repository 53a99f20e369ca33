#include "models/training/train_step.hpp"

#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace distilld::models {

namespace {

using torch::Tensor;

/// The loss over the rows of `batch` that carry it, with `targets` for these rows; `flat` is [B·T, H].
DistillLossScalars loss_of_rows(const CausalLm& network, const Tensor& flat, const TensorBatch& batch,
                                const DistillTargets& targets, const DistillLossOptions& options,
                                DistillLossGradients* gradients) {
    const torch::NoGradGuard no_grad;
    const Tensor all = flat.detach();
    return distill_loss_scalars(batch.rows.defined() ? all.index_select(0, batch.rows) : all, network.head_weight(),
                                targets, options, gradients);
}

/// Puts the gradients of the loss rows back among all positions, with zeros elsewhere.
Tensor spread_rows(const Tensor& gradient, const Tensor& flat, const Tensor& rows) {
    if (!rows.defined()) {
        return gradient;
    }
    const torch::NoGradGuard no_grad;
    return torch::zeros_like(flat).index_copy_(0, rows, gradient);
}

/// The factor of gradients with this norm, as torch.nn.utils.clip_grad_norm_; `limit` 0: 1.
double clip_coefficient(double limit, double norm) noexcept {
    return limit > 0 ? std::min(1.0, limit / (norm + 1e-6)) : 1.0;
}

}  // namespace

std::uint32_t gradient_group(const TrainingSpec& training, const MicroBatch& batch) noexcept {
    const std::uint64_t group =
        std::uint64_t{batch.index} * training.gradient_groups / std::max(1U, training.micro_batches);
    return static_cast<std::uint32_t>(std::min<std::uint64_t>(group, training.gradient_groups - 1));
}

DistillLossScalars accumulate_gradients(CausalLm& network, const TensorBatch& batch, DistillLossOptions options,
                                        const CausalLm::BeforeGroup& before) {
    const MicroBatchScope scope(batch.number, batch.ticket.get());
    const Tensor hidden = network.forward(batch.input_ids, before, batch.documents);
    if (before) {
        for (std::size_t group = 0; group < network.groups().size(); ++group) {
            before(group);
        }
    }
    const Tensor flat = hidden.reshape({-1, hidden.size(-1)});
    options.gradient_scale = 1.0 / static_cast<double>(std::max<std::uint64_t>(batch.step_target_tokens, 1));
    const Tensor head = network.head().master;
    DistillLossGradients gradients;
    gradients.with_head = network.head().trainable;
    std::optional<GradientTurn> turn;
    gradients.before_head = [&] {
        turn.emplace(head);
        gradients.head = gradient_sum(head);
    };
    DistillLossScalars sums = loss_of_rows(network, flat, batch, batch.targets, options, &gradients);
    if (turn) {
        gradient_sum(head) = gradients.head;
        turn.reset();
    }
    flat.backward(spread_rows(gradients.hidden, flat, batch.rows));
    return sums;
}

EvalStats evaluation_sums(CausalLm& network, const TensorBatch& batch, const TensorBatch* answered) {
    EvalStats stats;
    stats.target_tokens = batch.target_tokens;
    if (batch.target_tokens == 0) {
        return stats;
    }
    const torch::NoGradGuard no_grad;
    const Tensor hidden = network.forward(batch.input_ids, {}, batch.documents);
    const Tensor flat = hidden.reshape({-1, hidden.size(-1)});
    // Not taken from the sums with the teacher, where it would be free: its bits must not depend on a teacher.
    DistillTargets labels;
    labels.labels = batch.targets.labels;
    stats.ce_sum = sums_of(loss_of_rows(network, flat, batch, labels, DistillLossOptions{}, nullptr)).ce;
    if (answered != nullptr && answered->target_tokens > 0) {
        DistillLossOptions options;
        options.compare_tokens = true;
        const DistillLossSums sums =
            sums_of(loss_of_rows(network, flat, *answered, answered->targets, options, nullptr));
        stats.teacher_tokens = answered->target_tokens;
        stats.kl_sum = sums.kd;
        stats.agreeing = sums.agreeing;
        stats.accepted = sums.accepted;
    }
    return stats;
}

void StepLosses::add(const Ticket& ticket, const DistillLossScalars& of_micro_batch) {
    const torch::NoGradGuard no_grad;
    add(ticket.number(), {ticket.group(), torch::stack({of_micro_batch.loss, of_micro_batch.kd, of_micro_batch.ce})});
}

void StepLosses::add(std::uint64_t ticket, OfMicroBatch losses) {
    const std::lock_guard lock(mutex_);
    of_tickets_[ticket] = std::move(losses);
}

std::vector<StepLosses::OfMicroBatch> StepLosses::take() {
    std::vector<OfMicroBatch> taken;
    for (auto& [ticket, losses] : std::exchange(of_tickets_, {})) {
        taken.push_back(std::move(losses));
    }
    return taken;
}

void StepLosses::clear() {
    of_tickets_.clear();
}

StepStats StepLosses::read(const torch::Tensor& gradient_norm) const {
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> parts{gradient_norm.reshape({1})};
    torch::Tensor sums;
    for (const auto& [ticket, losses] : of_tickets_) {
        sums = sums.defined() ? sums.add_(losses.sums) : losses.sums.clone();
    }
    if (sums.defined()) {
        parts.push_back(sums);
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

void update_parameters(const StepStats& stats, LayeredOptimizer& optimizer, double learning_rate, double max_grad_norm,
                       bool others_have_gradients) {
    if (stats.finite) {
        optimizer.finish_step(learning_rate, clip_coefficient(max_grad_norm, stats.grad_norm), others_have_gradients);
    } else {
        optimizer.drop_gradients();
    }
}

StepStats close_step(StepLosses& losses, LayeredOptimizer& optimizer, double learning_rate, double max_grad_norm) {
    const StepStats stats = losses.read(optimizer.gradient_norm_scalar());
    losses.clear();
    update_parameters(stats, optimizer, learning_rate, max_grad_norm);
    return stats;
}

}  // namespace distilld::models
