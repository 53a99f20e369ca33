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
};

/// Micro-batches among which the rows of each are chosen by their lengths.
inline constexpr std::uint64_t kLengthWindow = 64;

/// Which dataset rows make up micro-batch n. A pure function of (rows, order, seed, batch_size): nothing about timing
/// enters. Epoch e visits the rows in a permutation drawn from (seed, e) by Fisher–Yates over SplitMix64, or each block
/// of them in one drawn from (seed, e, number of the block); micro-batches run on across epoch borders, so no row is
/// dropped.
///
/// By lengths: of the rows that are shuffled so, those of every kLengthWindow whole micro-batches of an epoch (or
/// block) are put in the order of their lengths, cut into these micro-batches, and the micro-batches shuffled. Which
/// rows are in a window, and which of its micro-batches comes when, is chance; so a step's rows are no longer or
/// shorter than others' on the whole. Micro-batches of one row, and those that run on across a border, are as they
/// come.
class BatchPlan {
  public:
    /// `rows` and `batch_size` are at least 1.
    BatchPlan(std::uint64_t rows, std::uint32_t batch_size, std::uint64_t seed, RowOrder order = {});

    /// Of these rows, in this order and once: the last micro-batch may be smaller, and none is behind it.
    static BatchPlan once(const std::vector<std::uint64_t>& rows, std::uint32_t batch_size);
    /// Further rows of a plan that once() made, behind those it has; they begin a micro-batch of their own. The number
    /// of micro-batches that there are now.
    std::uint64_t append(const std::vector<std::uint64_t>& rows);

    /// Row indices of micro-batch `number`, batch_size of them. One thread at a time (a permutation is cached).
    [[nodiscard]] std::vector<std::uint64_t> rows_of(std::uint64_t number) const;

  private:
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

/// Optimizer steps of a job: `max_steps`, or as many whole steps as `epochs` passes hold (at least one).
[[nodiscard]] std::uint64_t steps_of_epochs(std::uint64_t rows, std::uint32_t batch_size, std::uint32_t micro_batches,
                                            double epochs);

}  // namespace distilld
