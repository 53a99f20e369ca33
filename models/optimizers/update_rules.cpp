#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "models/optimizers/state_sizes.hpp"
#include "models/optimizers/update_rule.hpp"

namespace distilld::models {
namespace {

struct RuleRow {
    OptimizerKind kind;
    std::unique_ptr<UpdateRule> (*make)(const OptimizerOptions&);
};

constexpr RuleRow kRules[] = {
    {OptimizerKind::adamw, make_adamw},
    {OptimizerKind::adamw_8bit, make_adamw_8bit},
    {OptimizerKind::sgd, make_sgd},
};

}  // namespace

OptimizerOptions optimizer_options(const TrainingSpec& training) {
    OptimizerOptions options;
    options.kind = training.optimizer;
    options.beta1 = training.adam_beta1;
    options.beta2 = training.adam_beta2;
    options.epsilon = training.adam_epsilon;
    options.weight_decay = training.weight_decay;
    options.momentum = training.sgd_momentum;
    return options;
}

std::unique_ptr<UpdateRule> make_update_rule(const OptimizerOptions& options) {
    const auto* row = std::ranges::find(kRules, options.kind, &RuleRow::kind);
    if (row == std::end(kRules)) {
        throw std::logic_error("an optimizer without an update rule");
    }
    return row->make(options);
}

std::uint64_t training_bytes(std::span<const ParameterGroup> groups, const TrainingSpec& training,
                             torch::ScalarType master, torch::ScalarType compute) {
    const std::unique_ptr<UpdateRule> rule = make_update_rule(optimizer_options(training));
    std::uint64_t bytes = 0;
    for (const ParameterGroup& group : groups) {
        for (Parameter parameter : group.parameters) {
            if (!parameter.trainable) {
                bytes += static_cast<std::uint64_t>(parameter.held().numel()) * c10::elementSize(compute);
                continue;
            }
            // On the meta device: only the sizes are needed.
            const auto nowhere = torch::TensorOptions().dtype(master).device(torch::kMeta);
            parameter.master = torch::empty(parameter.held().sizes(), nowhere);
            bytes += (1 + gradient_sums(training)) * parameter.master.nbytes();
            for (const NamedTensor& state : rule->make_state(parameter, group)) {
                bytes += state.tensor.nbytes();
            }
        }
    }
    return bytes;
}

}  // namespace distilld::models
