#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "pipeline/core/batch_plan.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/data/dataset.hpp"
#include "pipeline/data/mixed_dataset.hpp"

namespace distilld {

/// A micro-batch as the plan stage hands it on.
struct PlannedBatch {
    std::shared_ptr<const TokenBatch> tokens;
    std::uint64_t step_target_tokens = 0;  ///< of all micro-batches of the step
    std::uint32_t index = 0;               ///< among the micro-batches of the step
    std::uint64_t number = 0;              ///< among those that this process trains on
    bool ends_step = false;                ///< of these, the last one of its step
    /// Only if rows name their teachers: the rows of each teacher, in the order of the teachers. A teacher may have
    /// none. row_ids are the numbers in the teacher's own dataset. Empty: all rows go to one teacher.
    std::vector<std::shared_ptr<const TokenBatch>> parts{};
    std::vector<PartRow> places{};  ///< for each row of `tokens`: its part, and its row in that part
};

/// The plan stage: makes micro-batch n of steps() from dataset and plan. A pure function of n: caching saves time. One
/// thread.
class BatchSource {
  public:
    /// `slice`: of each step's micro-batches, those that this process trains on; nullopt: all.
    BatchSource(std::shared_ptr<const Dataset> dataset, BatchPlan plan, std::uint32_t micro_batches,
                std::optional<StepSlice> slice = {});
    /// For rows that name their teachers.
    BatchSource(std::shared_ptr<const MixedDataset> dataset, BatchPlan plan, std::uint32_t micro_batches,
                std::optional<StepSlice> slice = {});

    [[nodiscard]] PlannedBatch batch(std::uint64_t number);
    /// BatchPlan::append().
    std::uint64_t append(const std::vector<std::uint64_t>& rows) { return plan_.append(rows); }
    [[nodiscard]] const StepPlan& steps() const noexcept { return steps_; }

  private:
    [[nodiscard]] std::uint64_t count_targets(std::uint64_t step) const;
    void split(PlannedBatch& planned) const;

    std::shared_ptr<const Dataset> dataset_;
    std::shared_ptr<const MixedDataset> mixed_;  // null: rows do not name their teachers
    BatchPlan plan_;
    StepPlan steps_;
    StepPlan whole_steps_;                                       // of all ranks
    std::map<std::uint64_t, std::uint64_t> step_target_tokens_;  // of the last steps that were asked for
};

}  // namespace distilld
