#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace distilld {

/// Which dataset rows make up micro-batch n. A pure function of (rows, seed, batch_size): nothing about timing enters.
/// Epoch e visits the rows in a permutation drawn from (seed, e) by Fisher–Yates over SplitMix64; micro-batches run on
/// across epoch borders, so no row is dropped.
class BatchPlan {
  public:
    /// `rows` and `batch_size` are at least 1.
    BatchPlan(std::uint64_t rows, std::uint32_t batch_size, std::uint64_t seed);

    /// Row indices of micro-batch `number`, batch_size of them. One thread at a time (a permutation is cached).
    [[nodiscard]] std::vector<std::uint64_t> rows_of(std::uint64_t number) const;

  private:
    [[nodiscard]] const std::vector<std::uint64_t>& permutation(std::uint64_t epoch) const;

    std::uint64_t rows_;
    std::uint32_t batch_size_;
    std::uint64_t seed_;
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
