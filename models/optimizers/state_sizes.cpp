#include "models/optimizers/state_sizes.hpp"

#include <algorithm>
#include <bit>

namespace distilld::models {

std::uint64_t optimizer_state_bytes(const TrainingSpec& training, std::uint64_t numbers, std::uint64_t exact) noexcept {
    constexpr std::uint64_t kFloat = 4;
    switch (training.optimizer) {
        case OptimizerKind::adamw:
            return 2 * kFloat * numbers;
        case OptimizerKind::adamw_8bit: {
            const std::uint64_t coded = numbers - exact;  // two one-byte codes per number, two scales per block
            return 2 * kFloat * exact + 2 * (coded + kFloat * (coded / kQuantizedBlock));
        }
        case OptimizerKind::sgd:
            return training.sgd_momentum > 0 ? kFloat * numbers : 0;
    }
    return 0;
}

std::uint64_t gradient_sums(const TrainingSpec& training) noexcept {
    const std::uint32_t groups = training.micro_batches_auto
                                     ? training.gradient_groups
                                     : std::min(training.gradient_groups, training.micro_batches);
    return static_cast<std::uint64_t>(std::bit_width(std::max(groups, 1U)));
}

}  // namespace distilld::models
