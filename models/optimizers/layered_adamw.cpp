#include "models/optimizers/layered_adamw.hpp"

#include "models/optimizers/gradient_norm.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;

/// Moments alone, for a step of learning rate 0: p −= 0·… would turn −0.0 into +0.0.
void move_moments(const Tensor& gradient, Tensor exp_avg, Tensor exp_avg_sq, const AdamWOptions& options, double clip) {
    const Tensor scaled = clip == 1.0 ? gradient : gradient * clip;
    exp_avg.lerp_(scaled, 1.0 - options.beta1);
    exp_avg_sq.mul_(options.beta2).addcmul_(scaled, scaled, 1.0 - options.beta2);
}

}  // namespace

LayeredAdamW::LayeredAdamW(std::span<const ParameterGroup> groups, AdamWOptions options, UpdateMode mode)
    : pending_(groups.size()), options_(options), mode_(mode) {
    const torch::NoGradGuard no_grad;
    groups_.reserve(groups.size());
    for (const ParameterGroup& group : groups) {
        std::vector<Slot>& slots = groups_.emplace_back();
        for (const Parameter& parameter : group.parameters) {
            if (parameter.trainable) {
                slots.push_back(Slot{parameter.name, parameter.master, torch::zeros_like(parameter.master),
                                     torch::zeros_like(parameter.master),
                                     options_.weight_decay != 0 && parameter.decays});
            }
        }
    }
}

std::vector<Tensor> LayeredAdamW::gradients() const {
    TORCH_CHECK(pending_count_ == 0, "the gradients of a pending update are not those of the step under way");
    std::vector<Tensor> gradients;
    for (const auto& group : groups_) {
        for (const Slot& slot : group) {
            if (slot.parameter.grad().defined()) {
                gradients.push_back(slot.parameter.grad());
            }
        }
    }
    return gradients;
}

double LayeredAdamW::gradient_norm() const {
    return l2_norm(gradients());
}

void LayeredAdamW::finish_step(double learning_rate, double clip_coefficient) {
    apply_all();
    // Counting it would shrink the bias correction of the steps that follow.
    if (gradients().empty()) {
        return;
    }
    ++steps_;
    pending_.assign(groups_.size(), Update{learning_rate, clip_coefficient, steps_});
    pending_count_ = groups_.size();
    if (mode_ == UpdateMode::serial) {
        apply_all();
    }
}

void LayeredAdamW::drop_gradients() {
    TORCH_CHECK(pending_count_ == 0, "the gradients of a pending update cannot be dropped");
    for (auto& group : groups_) {
        for (Slot& slot : group) {
            slot.parameter.mutable_grad() = Tensor();
        }
    }
}

bool LayeredAdamW::apply(std::size_t group) {
    if (!pending_.at(group)) {
        return false;
    }
    const Update due = *pending_[group];
    pending_[group].reset();
    --pending_count_;
    update(groups_[group], due);
    return true;
}

bool LayeredAdamW::apply_next() {
    for (std::size_t group = 0; pending_count_ > 0 && group < groups_.size(); ++group) {
        if (apply(group)) {
            return true;
        }
    }
    return false;
}

void LayeredAdamW::apply_all() {
    while (apply_next()) {
    }
}

void LayeredAdamW::update(const std::vector<Slot>& group, const Update& update) const {
    const torch::NoGradGuard no_grad;
    struct Lists {
        std::vector<Tensor> parameters, gradients, exp_avgs, exp_avg_sqs, steps;
    };
    Lists lists[2];
    const auto scalar = [&](double value, const torch::Device& device) {
        return torch::full({}, value, torch::TensorOptions().dtype(torch::kFloat).device(device));
    };
    Tensor step;
    Tensor scale;
    for (const Slot& slot : group) {
        const Tensor gradient = slot.parameter.grad();
        if (!gradient.defined()) {
            continue;
        }
        if (update.learning_rate == 0) {
            move_moments(gradient, slot.exp_avg, slot.exp_avg_sq, options_, update.clip_coefficient);
            continue;
        }
        if (!step.defined()) {
            step = scalar(static_cast<double>(update.step), slot.parameter.device());
            if (update.clip_coefficient != 1.0) {
                scale = scalar(1.0 / update.clip_coefficient, slot.parameter.device());
            }
        }
        Lists& lists_of = lists[slot.decays ? 1 : 0];
        lists_of.parameters.push_back(slot.parameter);
        lists_of.gradients.push_back(gradient.contiguous());
        lists_of.exp_avgs.push_back(slot.exp_avg);
        lists_of.exp_avg_sqs.push_back(slot.exp_avg_sq);
        lists_of.steps.push_back(step);
    }
    for (const bool decays : {false, true}) {
        const Lists& due = lists[decays ? 1 : 0];
        if (due.parameters.empty()) {
            continue;
        }
        // The kernel divides gradients by grad_scale; 1 / clip makes that the clipping, without a pass of its own.
        at::_fused_adamw_(due.parameters, due.gradients, due.exp_avgs, due.exp_avg_sqs, {}, due.steps,
                          update.learning_rate, options_.beta1, options_.beta2, decays ? options_.weight_decay : 0.0,
                          options_.epsilon, false, false,
                          scale.defined() ? std::optional<Tensor>(scale) : std::nullopt);
    }
    // Dropped, not zeroed: the next backward's first gradient is then written once, not added to zeros.
    for (const Slot& slot : group) {
        Tensor parameter = slot.parameter;
        parameter.mutable_grad() = Tensor();
    }
}

NamedTensors LayeredAdamW::state() const {
    NamedTensors tensors;
    for (const auto& group : groups_) {
        for (const Slot& slot : group) {
            tensors.push_back({"exp_avg." + slot.name, slot.exp_avg});
            tensors.push_back({"exp_avg_sq." + slot.name, slot.exp_avg_sq});
        }
    }
    return tensors;
}

void LayeredAdamW::reset(std::uint64_t steps) {
    pending_.assign(groups_.size(), std::nullopt);
    pending_count_ = 0;
    drop_gradients();
    steps_ = steps;
}

}  // namespace distilld::models
