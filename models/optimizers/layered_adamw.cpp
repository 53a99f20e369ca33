#include "models/optimizers/layered_adamw.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

namespace distilld::models {
namespace {

using torch::Tensor;

constexpr std::int64_t kBlock = 1 << 15;  ///< elements whose squares are added by one thread
constexpr std::int64_t kRun = 1 << 10;    ///< of these, added in fp32 lanes before they go to fp64
constexpr std::size_t kLanes = 16;

/// Sixteen fp32 partial sums of at most 64 squares each, then fp64: as exact as needed and as fast as memory.
double block_sum(const float* data, std::int64_t count) {
    double total = 0;
    std::int64_t at = 0;
    while (at < count) {
        const std::int64_t run = std::min(kRun, count - at);
        float lanes[kLanes] = {};
        std::int64_t i = 0;
        for (; i + static_cast<std::int64_t>(kLanes) <= run; i += static_cast<std::int64_t>(kLanes)) {
            for (std::size_t lane = 0; lane < kLanes; ++lane) {
                const float x = data[at + i + static_cast<std::int64_t>(lane)];
                lanes[lane] += x * x;
            }
        }
        for (; i < run; ++i) {
            const float x = data[at + i];
            lanes[0] += x * x;
        }
        for (const float lane : lanes) {
            total += lane;
        }
        at += run;
    }
    return total;
}

/// Moments alone, for a step of learning rate 0: p −= 0·… would turn −0.0 into +0.0.
void move_moments(const Tensor& gradient, Tensor exp_avg, Tensor exp_avg_sq, const AdamWOptions& options, double clip) {
    const Tensor scaled = clip == 1.0 ? gradient : gradient * clip;
    exp_avg.lerp_(scaled, 1.0 - options.beta1);
    exp_avg_sq.mul_(options.beta2).addcmul_(scaled, scaled, 1.0 - options.beta2);
}

}  // namespace

double sum_of_squares(const Tensor& tensor) {
    if (!tensor.device().is_cpu()) {
        return tensor.to(torch::kDouble).square().sum().item<double>();
    }
    const Tensor flat = tensor.contiguous();
    const float* data = flat.const_data_ptr<float>();
    const std::int64_t count = flat.numel();
    const std::int64_t blocks = (count + kBlock - 1) / kBlock;
    std::vector<double> sums(static_cast<std::size_t>(blocks));
    at::parallel_for(0, blocks, 4, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t block = begin; block < end; ++block) {
            const std::int64_t first = block * kBlock;
            sums[static_cast<std::size_t>(block)] = block_sum(data + first, std::min(kBlock, count - first));
        }
    });
    double total = 0;
    for (const double sum : sums) {
        total += sum;
    }
    return total;
}

LayeredAdamW::LayeredAdamW(std::vector<ParameterGroup> groups, AdamWOptions options, UpdateMode mode)
    : pending_(groups.size()), options_(options), mode_(mode) {
    const torch::NoGradGuard no_grad;
    groups_.reserve(groups.size());
    for (const ParameterGroup& group : groups) {
        std::vector<Slot>& slots = groups_.emplace_back();
        for (const auto& [name, parameter] : group.parameters) {
            slots.push_back(Slot{name, parameter, torch::zeros_like(parameter), torch::zeros_like(parameter),
                                 options_.weight_decay != 0 && parameter.dim() >= 2});
        }
    }
}

double LayeredAdamW::gradient_norm() const {
    TORCH_CHECK(pending_count_ == 0, "the gradients of a pending update are not those of the step under way");
    double total = 0;
    for (const auto& group : groups_) {
        for (const Slot& slot : group) {
            if (slot.parameter.grad().defined()) {
                total += sum_of_squares(slot.parameter.grad());
            }
        }
    }
    return std::sqrt(total);
}

void LayeredAdamW::finish_step(double learning_rate, double clip_coefficient) {
    apply_all();
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

std::vector<std::pair<std::string, Tensor>> LayeredAdamW::state() const {
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const auto& group : groups_) {
        for (const Slot& slot : group) {
            tensors.emplace_back("exp_avg." + slot.name, slot.exp_avg);
            tensors.emplace_back("exp_avg_sq." + slot.name, slot.exp_avg_sq);
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
