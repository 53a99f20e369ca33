#include "models/optimizers/layered_optimizer.hpp"

#include <torch/utils.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "models/optimizers/gradient_norm.hpp"

namespace distilld::models {
using torch::Tensor;

LayeredOptimizer::LayeredOptimizer(std::span<const ParameterGroup> groups, std::unique_ptr<UpdateRule> rule,
                                   UpdateMode mode, const std::function<bool(std::size_t)>& keeps)
    : pending_(groups.size()), rule_(std::move(rule)), mode_(mode) {
    const torch::NoGradGuard no_grad;
    groups_.reserve(groups.size());
    for (const ParameterGroup& group : groups) {
        std::vector<OptimizerSlot>& slots = groups_.emplace_back();
        const bool kept = !keeps || keeps(groups_.size() - 1);
        for (const Parameter& parameter : group.parameters) {
            if (parameter.trainable) {
                Parameter like = parameter;
                if (!kept) {
                    like.master = parameter.master.to(torch::kMeta);
                }
                slots.push_back({parameter.name, parameter.master, rule_->make_state(like, group), parameter.decays});
            }
        }
    }
}

std::vector<Tensor> LayeredOptimizer::gradients() const {
    TORCH_CHECK(pending_count_ == 0, "the gradients of a pending update are not those of the step under way");
    std::vector<Tensor> gradients;
    for (const auto& group : groups_) {
        for (const OptimizerSlot& slot : group) {
            if (slot.parameter.grad().defined()) {
                gradients.push_back(slot.parameter.grad());
            }
        }
    }
    return gradients;
}

double LayeredOptimizer::gradient_norm() const {
    return l2_norm(gradients());
}

Tensor LayeredOptimizer::gradient_norm_scalar() const {
    return l2_norm_scalar(gradients());
}

void LayeredOptimizer::finish_step(double learning_rate, double clip_coefficient, bool others_have_some) {
    apply_all();
    // Counting such a step would shrink the bias correction of the following steps.
    if (gradients().empty() && !others_have_some) {
        return;
    }
    ++steps_;
    pending_.assign(groups_.size(), UpdateNumbers{learning_rate, clip_coefficient, steps_});
    pending_count_ = groups_.size();
    if (mode_ == UpdateMode::serial) {
        apply_all();
    }
}

void LayeredOptimizer::drop_gradients() {
    TORCH_CHECK(pending_count_ == 0, "the gradients of a pending update cannot be dropped");
    for (auto& group : groups_) {
        for (OptimizerSlot& slot : group) {
            slot.parameter.mutable_grad() = Tensor();
        }
    }
}

bool LayeredOptimizer::apply(std::size_t group) {
    if (!pending_.at(group)) {
        return false;
    }
    const UpdateNumbers due = *pending_[group];
    pending_[group].reset();
    --pending_count_;
    update(groups_[group], due);
    return true;
}

bool LayeredOptimizer::apply_next() {
    for (std::size_t group = 0; pending_count_ > 0 && group < groups_.size(); ++group) {
        if (apply(group)) {
            return true;
        }
    }
    return false;
}

void LayeredOptimizer::apply_all() {
    while (apply_next()) {
    }
}

void LayeredOptimizer::update(std::vector<OptimizerSlot>& group, const UpdateNumbers& numbers) const {
    const torch::NoGradGuard no_grad;
    std::vector<OptimizerSlot*> due;
    for (OptimizerSlot& slot : group) {
        if (slot.parameter.grad().defined()) {
            due.push_back(&slot);
        }
    }
    rule_->update(due, numbers);
    // Dropped, not zeroed: the next backward's first gradient is then written once, not added to zeros.
    for (OptimizerSlot* slot : due) {
        slot->parameter.mutable_grad() = Tensor();
        // A rule may write through a pointer, which libtorch does not see; see compute_weight().
        slot->parameter.unsafeGetTensorImpl()->bump_version();
    }
}

NamedTensors LayeredOptimizer::state() const {
    NamedTensors tensors;
    for (std::size_t group = 0; group < groups_.size(); ++group) {
        std::ranges::move(state_of(group), std::back_inserter(tensors));
    }
    return tensors;
}

NamedTensors LayeredOptimizer::state_of(std::size_t group) const {
    NamedTensors tensors;
    for (const OptimizerSlot& slot : groups_.at(group)) {
        for (const NamedTensor& state : slot.state) {
            tensors.push_back({state.name + "." + slot.name, state.tensor});
        }
    }
    return tensors;
}

void LayeredOptimizer::reset(std::uint64_t steps) {
    pending_.assign(groups_.size(), std::nullopt);
    pending_count_ = 0;
    drop_gradients();
    steps_ = steps;
}

}  // namespace distilld::models
