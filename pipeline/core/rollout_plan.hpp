#pragma once

#include <algorithm>
#include <cstdint>

#include "base/random.hpp"
#include "pipeline/core/batch_plan.hpp"

namespace distilld {

/// Which weights write the answers of a micro-batch, and from which seeds: pure functions of the spec, so that neither
/// depends on timing. Micro-batches are numbered over all ranks.
struct RolloutPlan {
    StepPlan steps;          ///< of all ranks
    std::uint64_t rows = 1;  ///< prompts
    std::uint32_t batch_size = 1;
    bool ends_epochs = false;  ///< RowOrder::ends_epochs
    std::uint64_t seed = 0;
    std::uint64_t staleness = 0;     ///< k
    double lmbda = 1;                ///< share of the prompts that are answered
    std::uint64_t dataset_rows = 0;  ///< that stand in for the others

    /// Those after this many steps: of step s, those after s − k steps, or the first ones.
    [[nodiscard]] std::uint64_t version_of(std::uint64_t micro_batch) const {
        const std::uint64_t step = steps.step_of(micro_batch);
        return step - std::min(step, staleness);
    }
    /// Micro-batches below this number may be written once there are the weights after `version` steps.
    [[nodiscard]] std::uint64_t end_of(std::uint64_t version) const { return steps.first_of(version + staleness + 1); }

    [[nodiscard]] std::uint64_t epoch_of(std::uint64_t micro_batch, std::uint64_t index) const {
        return ends_epochs ? micro_batch / ((rows + batch_size - 1) / batch_size)
                           : (micro_batch * batch_size + index) / rows;
    }
    /// The seed of the answer to `row`, number `index` of its micro-batch: below 2³¹, which every server takes. The
    /// same in micro-batches of another size.
    [[nodiscard]] std::uint64_t seed_of(std::uint64_t micro_batch, std::uint64_t index, std::uint64_t row) const {
        return draws_of(micro_batch, index, row).next() >> 33U;
    }
    /// Whether the student answers this prompt; otherwise dataset_row() takes its place.
    [[nodiscard]] bool answers(std::uint64_t micro_batch, std::uint64_t index, std::uint64_t row) const {
        SplitMix64 draws = draws_of(micro_batch, index, row);
        draws.next();  // the seed
        return draws.uniform() < lmbda;
    }
    /// With as many rows as prompts, row r stands in for prompt r.
    [[nodiscard]] std::uint64_t dataset_row(std::uint64_t micro_batch, std::uint64_t index, std::uint64_t row) const {
        return (epoch_of(micro_batch, index) * rows + row) % dataset_rows;
    }

  private:
    [[nodiscard]] SplitMix64 draws_of(std::uint64_t micro_batch, std::uint64_t index, std::uint64_t row) const {
        const std::uint64_t of_epoch = SplitMix64(seed ^ SplitMix64(epoch_of(micro_batch, index)).next()).next();
        return SplitMix64(of_epoch ^ SplitMix64(row + 1).next());
    }
};

}  // namespace distilld
