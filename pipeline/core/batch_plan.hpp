#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pipeline/core/spec_sections.hpp"

namespace distilld {

/// How an epoch visits the rows.
struct RowOrder {
    Shuffle shuffle = Shuffle::full;
    std::uint64_t block_rows = 0;  ///< of Shuffle::blocks, at least 1; the last block may be shorter
    /// Length of each row, if rows of similar lengths should share a micro-batch; null: rows keep their order.
    std::shared_ptr<const std::vector<std::uint32_t>> lengths{};
    /// Rows of the micro-batches that `lengths` are grouped into, if the plan's micro-batches are parts of them (a run
    /// that ran out of memory continues with smaller ones over the same rows); a multiple of batch_size. 0 =
    /// batch_size.
    std::uint32_t grouped_by = 0;
    /// The last micro-batch of an epoch has the remaining rows, and a step ends with it; false: micro-batches and steps
    /// cross epoch boundaries.
    bool ends_epochs = false;
};

/// Neighbouring micro-batches of each step.
struct StepSlice {
    std::uint32_t begin = 0;
    std::uint32_t end = 0;  ///< not included
};

/// Which micro-batches make up which optimizer step: `micro_batches` each; if steps end with their epoch, its last step
/// has the remaining ones. A slice of each step is what one of several ranks trains on: its micro-batches are numbered
/// from 0 without gaps. A step that ends with its epoch may have none of them.
class StepPlan {
  public:
    StepPlan() = default;
    /// `of_epoch`: micro-batches; 0: steps cross epoch boundaries. `slice`: below `micro_batches`, not empty.
    StepPlan(std::uint32_t micro_batches, std::uint64_t of_epoch, StepSlice slice);
    StepPlan(std::uint32_t micro_batches, std::uint64_t of_epoch)
        : StepPlan(micro_batches, of_epoch, {0, micro_batches}) {}

    /// The number of the slice's first micro-batch in this step or after it.
    [[nodiscard]] std::uint64_t first_of(std::uint64_t step) const noexcept;
    [[nodiscard]] std::uint64_t step_of(std::uint64_t number) const noexcept;
    /// The place of the slice's micro-batch among all micro-batches of its step.
    [[nodiscard]] std::uint32_t index_of(std::uint64_t number) const noexcept;
    /// The same steps with all their micro-batches.
    [[nodiscard]] StepPlan whole() const { return {micro_batches_, of_epoch_}; }
    /// Whether an epoch has micro-batches of the slice.
    [[nodiscard]] bool has_any() const noexcept { return of_epoch_ == 0 || own_of_epoch_ > 0; }

  private:
    std::uint32_t micro_batches_ = 1;
    std::uint64_t of_epoch_ = 0;
    StepSlice slice_{0, 1};
    std::uint64_t own_of_epoch_ = 0;  ///< micro-batches of the slice
};

/// The micro-batches of a step that rank `rank` of `ranks` trains on.
[[nodiscard]] StepSlice slice_of_rank(std::uint32_t micro_batches, std::uint32_t rank, std::uint32_t ranks) noexcept;

/// Micro-batches per window of grouping by length.
inline constexpr std::uint64_t kLengthWindow = 64;

/// Which dataset rows make up micro-batch n. A pure function of (rows, order, seed, batch_size), independent of timing.
/// Epoch e visits the rows in a permutation drawn from (seed, e) by Fisher–Yates over SplitMix64, or each block of them
/// in one drawn from (seed, e, number of the block). No row is dropped: micro-batches cross epoch boundaries, or the
/// last of an epoch is smaller (RowOrder::ends_epochs).
///
/// By lengths: after the shuffle, the rows of every kLengthWindow whole micro-batches of an epoch (or block) are sorted
/// by length, split into these micro-batches, and the micro-batches are shuffled. The rows of a window and the order of
/// its micro-batches are random, so steps do not differ in length on average. Micro-batches of one row, those across a
/// boundary, and the smaller last one of an epoch are not sorted.
class BatchPlan {
  public:
    /// `rows` and `batch_size` are at least 1.
    BatchPlan(std::uint64_t rows, std::uint32_t batch_size, std::uint64_t seed, RowOrder order = {});

    /// A plan of these rows, in this order, once: the last micro-batch may be smaller.
    static BatchPlan once(const std::vector<std::uint64_t>& rows, std::uint32_t batch_size);
    /// Appends rows to a plan of once(); they begin a new micro-batch. Returns the new number of micro-batches.
    std::uint64_t append(const std::vector<std::uint64_t>& rows);

    /// Row indices of micro-batch `number`: batch_size of them, or the rest of an epoch. One thread at a time (a
    /// permutation is cached).
    [[nodiscard]] std::vector<std::uint64_t> rows_of(std::uint64_t number) const;

    /// Steps of this many micro-batches each.
    [[nodiscard]] StepPlan steps_of(std::uint32_t micro_batches) const {
        return steps_of(micro_batches, {0, micro_batches});
    }
    [[nodiscard]] StepPlan steps_of(std::uint32_t micro_batches, StepSlice slice) const;

  private:
    /// For an epoch that ends with the remaining rows.
    [[nodiscard]] std::uint64_t batches_of_epoch() const { return (rows_ + batch_size_ - 1) / batch_size_; }
    [[nodiscard]] const std::vector<std::uint64_t>& permutation(std::uint64_t epoch) const;
    void group_by_length(std::vector<std::uint64_t>& order, std::uint64_t first, std::uint64_t end, std::uint64_t epoch,
                         std::uint64_t state) const;

    std::uint64_t rows_;
    std::uint32_t batch_size_;
    std::uint64_t seed_;
    RowOrder order_;
    std::uint32_t grouped_by_;  ///< rows of the micro-batches of RowOrder::lengths
    bool once_ = false;
    std::vector<std::vector<std::uint64_t>> batches_;  ///< for a plan of once()
    struct Cached {
        std::uint64_t epoch = 0;
        std::vector<std::uint64_t> order;
    };
    mutable Cached cache_[2];
};

/// Optimizer steps of `of_step` rows that `epochs` passes take. If steps end with their epoch (RowOrder::ends_epochs),
/// a partial epoch is rounded up to whole steps, as in transformers; otherwise, only whole steps of all passes count.
/// At least one.
[[nodiscard]] std::uint64_t steps_of_epochs(std::uint64_t rows, std::uint64_t of_step, double epochs,
                                            bool ends_epochs = true);

}  // namespace distilld
