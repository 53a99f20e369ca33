#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "pipeline/core/job_spec.hpp"

namespace distilld {

/// How an epoch goes through the rows.
struct RowOrder {
    Shuffle shuffle = Shuffle::full;
    std::uint64_t block_rows = 0;  ///< of Shuffle::blocks, at least 1; the last block may be shorter
    /// Of each row, where rows of like lengths are to share a micro-batch; null: they are taken as they come.
    std::shared_ptr<const std::vector<std::uint32_t>> lengths{};
    /// Rows of the micro-batches into which `lengths` are put, where those of the plan are parts of them (a run whose
    /// memory did not suffice goes on with smaller ones, over the same rows); a multiple of batch_size. 0 = batch_size.
    std::uint32_t grouped_by = 0;
    /// The last micro-batch of an epoch has what is left of its rows, and a step ends with it; false: micro-batches and
    /// steps run on across the borders of epochs.
    bool ends_epochs = false;
};

/// Which micro-batches make up which optimizer step: each `micro_batches` of them or, where steps end with their epoch,
/// its last step as many as are left.
struct StepPlan {
    std::uint32_t micro_batches = 1;
    std::uint64_t of_epoch = 0;  ///< micro-batches; 0: steps run on across the borders of epochs

    [[nodiscard]] std::uint64_t first_of(std::uint64_t step) const noexcept;
    [[nodiscard]] std::uint64_t step_of(std::uint64_t micro_batch) const noexcept;
};

/// Micro-batches among which the rows of each are chosen by their lengths.
inline constexpr std::uint64_t kLengthWindow = 64;

/// Which dataset rows make up micro-batch n. A pure function of (rows, order, seed, batch_size): nothing about timing
/// enters. Epoch e visits the rows in a permutation drawn from (seed, e) by Fisher–Yates over SplitMix64, or each block
/// of them in one drawn from (seed, e, number of the block). No row is dropped: micro-batches run on across epoch
/// borders, or the last of an epoch is smaller (RowOrder::ends_epochs).
///
/// By lengths: of the rows that are shuffled so, those of every kLengthWindow whole micro-batches of an epoch (or
/// block) are put in the order of their lengths, cut into these micro-batches, and the micro-batches shuffled. Which
/// rows are in a window, and which of its micro-batches comes when, is chance; so a step's rows are no longer or
/// shorter than others' on the whole. Micro-batches of one row, those that run on across a border, and the smaller last
/// one of an epoch are as they come.
class BatchPlan {
  public:
    /// `rows` and `batch_size` are at least 1.
    BatchPlan(std::uint64_t rows, std::uint32_t batch_size, std::uint64_t seed, RowOrder order = {});

    /// Of these rows, in this order and once: the last micro-batch may be smaller, and none is behind it.
    static BatchPlan once(const std::vector<std::uint64_t>& rows, std::uint32_t batch_size);
    /// Further rows of a plan that once() made, behind those it has; they begin a micro-batch of their own. The number
    /// of micro-batches that there are now.
    std::uint64_t append(const std::vector<std::uint64_t>& rows);

    /// Row indices of micro-batch `number`: batch_size of them, or what is left of an epoch. One thread at a time (a
    /// permutation is cached).
    [[nodiscard]] std::vector<std::uint64_t> rows_of(std::uint64_t number) const;

    /// Of so many micro-batches each.
    [[nodiscard]] StepPlan steps_of(std::uint32_t micro_batches) const;

  private:
    /// Of an epoch that ends with what is left of it.
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
    std::vector<std::vector<std::uint64_t>> batches_;  ///< of a plan that goes through its rows once
    struct Cached {
        std::uint64_t epoch = 0;
        std::vector<std::uint64_t> order;
    };
    mutable Cached cache_[2];
};

/// Optimizer steps of `of_step` rows that `epochs` passes take. Where steps end with their epoch
/// (RowOrder::ends_epochs), an epoch takes as many as it needs, and a part of one is rounded up to whole steps, as with
/// transformers; else as many whole steps as the passes hold. At least one.
[[nodiscard]] std::uint64_t steps_of_epochs(std::uint64_t rows, std::uint64_t of_step, double epochs,
                                            bool ends_epochs = true);

}  // namespace distilld
