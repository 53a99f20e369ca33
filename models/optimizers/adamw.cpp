#include <optional>
#include <vector>

#include "models/optimizers/update_rule.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;

class AdamW final : public UpdateRule {
  public:
    explicit AdamW(const OptimizerOptions& options) : options_(options) {}

    [[nodiscard]] NamedTensors make_state(const Parameter& parameter, const ParameterGroup& /*group*/) const override {
        return {{"exp_avg", torch::zeros_like(parameter.master)}, {"exp_avg_sq", torch::zeros_like(parameter.master)}};
    }

    void update(std::span<OptimizerSlot* const> slots, const UpdateNumbers& numbers) const override {
        if (numbers.learning_rate == 0) {
            for (OptimizerSlot* slot : slots) {
                move_moments(*slot, numbers.clip_coefficient);
            }
            return;
        }
        for (const bool decays : {false, true}) {
            update_those(slots, numbers, decays);
        }
    }

  private:
    /// Only the moments: p −= 0·… would turn −0.0 into +0.0.
    void move_moments(OptimizerSlot& slot, double clip) const {
        const Tensor gradient = slot.parameter.grad();
        const Tensor scaled = clip == 1.0 ? gradient : gradient * clip;
        slot.state[0].tensor.lerp_(scaled, 1.0 - options_.beta1);
        slot.state[1].tensor.mul_(options_.beta2).addcmul_(scaled, scaled, 1.0 - options_.beta2);
    }

    void update_those(std::span<OptimizerSlot* const> slots, const UpdateNumbers& numbers, bool decays) const {
        std::vector<Tensor> parameters, gradients, exp_avgs, exp_avg_sqs, steps;
        Tensor step;
        std::optional<Tensor> scale;
        for (OptimizerSlot* slot : slots) {
            if (slot->decays != decays) {
                continue;
            }
            if (!step.defined()) {
                const auto scalar = torch::TensorOptions().dtype(torch::kFloat).device(slot->parameter.device());
                step = torch::full({}, static_cast<double>(numbers.step), scalar);
                if (numbers.clip_coefficient != 1.0 && slot->parameter.scalar_type() != torch::kDouble) {
                    scale = torch::full({}, 1.0 / numbers.clip_coefficient, scalar);
                }
            }
            parameters.push_back(slot->parameter);
            gradients.push_back(slot->parameter.grad().contiguous());
            if (numbers.clip_coefficient != 1.0 && !scale) {
                gradients.back().mul_(numbers.clip_coefficient);
            }
            exp_avgs.push_back(slot->state[0].tensor);
            exp_avg_sqs.push_back(slot->state[1].tensor);
            steps.push_back(step);
        }
        if (parameters.empty()) {
            return;
        }
        // The kernel divides gradients by grad_scale (in fp32), so 1 / clip clips them without a separate pass.
        at::_fused_adamw_(parameters, gradients, exp_avgs, exp_avg_sqs, {}, steps, numbers.learning_rate,
                          options_.beta1, options_.beta2, decays ? options_.weight_decay : 0.0, options_.epsilon, false,
                          false, scale);
    }

    OptimizerOptions options_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_adamw(const OptimizerOptions& options) {
    return std::make_unique<AdamW>(options);
}

}  // namespace distilld::models
