#include "models/training/memory_check.hpp"

#include <string>

#include "base/format.hpp"
#include "models/optimizers/update_rule.hpp"

namespace distilld::models {
namespace {

std::string gibibytes(std::uint64_t bytes) {
    return formatted("%.1f GiB", static_cast<double>(bytes) / (1U << 30U));
}

}  // namespace

Result<void> check_training_memory(const CausalLm& network, const TrainingSpec& training, std::string_view field,
                                   std::uint64_t max_bytes) {
    const ComputeDtype dtype = network.dtype();
    const std::uint64_t bytes = training_bytes(network.groups(), training, master_type(dtype), to_scalar_type(dtype));
    if (max_bytes == 0 || bytes <= max_bytes) {
        return {};
    }
    const std::uint64_t all = parameter_count(network.groups());
    const std::uint64_t frozen = all - trainable_count(network.groups());
    return invalid_input(std::string(field) + ": a network of " + std::to_string(all) + " parameters" +
                         (frozen > 0 ? ", " + std::to_string(frozen) + " of them frozen," : "") + " takes " +
                         gibibytes(bytes) + " to train with " + to_string(training.optimizer) +
                         " (weights, gradients and optimizer states), but the device has " + gibibytes(max_bytes));
}

}  // namespace distilld::models
