#include "models/optimizers/update_rule.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;

class Sgd final : public UpdateRule {
  public:
    explicit Sgd(const OptimizerOptions& options) : options_(options) {}

    [[nodiscard]] NamedTensors make_state(const Parameter& parameter, const ParameterGroup& /*group*/) const override {
        if (options_.momentum == 0) {
            return {};
        }
        return {{"momentum_buffer", torch::zeros_like(parameter.master)}};
    }

    void update(std::span<OptimizerSlot* const> slots, const UpdateNumbers& numbers) const override {
        for (OptimizerSlot* slot : slots) {
            // The gradient is dropped after the step, so it may be changed.
            Tensor direction = slot->parameter.grad();
            if (numbers.clip_coefficient != 1.0) {
                direction.mul_(numbers.clip_coefficient);
            }
            if (slot->decays && options_.weight_decay != 0) {
                direction.add_(slot->parameter, options_.weight_decay);
            }
            if (options_.momentum != 0) {
                direction = slot->state[0].tensor.mul_(options_.momentum).add_(direction);
            }
            if (numbers.learning_rate != 0) {
                slot->parameter.add_(direction, -numbers.learning_rate);
            }
        }
    }

  private:
    OptimizerOptions options_;
};

}  // namespace

std::unique_ptr<UpdateRule> make_sgd(const OptimizerOptions& options) {
    return std::make_unique<Sgd>(options);
}

}  // namespace distilld::models
