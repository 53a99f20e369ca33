#pragma once

#include <cstdint>
#include <string>

#include "pipeline/core/job_spec.hpp"
#include "pipeline/core/worker_events.hpp"

namespace distilld {

/// What a spec says of how steps are cut, and of how many rows.
struct BatchWish {
    std::uint64_t rows = 0;           ///< of the dataset
    std::uint32_t batch_size = 0;     ///< 0: "auto"
    std::uint32_t micro_batches = 0;  ///< 0: "auto"
};

[[nodiscard]] BatchWish wish_of(const TrainingSpec& training, std::uint64_t rows) noexcept;

/// Steps that an epoch has at least, where it has so many rows: too few of them learn little, whatever they are made
/// of.
inline constexpr std::uint64_t kMinStepsOfEpoch = 32;
/// Sequences that a micro-batch, or a step whose number of micro-batches is "auto", has at most.
inline constexpr std::uint32_t kMaxAutomaticSequences = 64;

/// Up to where an automatic batch size may go, whatever the memory: a power of two.
[[nodiscard]] std::uint32_t max_batch_size(const BatchWish& wish);

/// Micro-batches of a step where a micro-batch has `batch_size` rows: what the spec says or, of "auto", so many that
/// the step has as many sequences as it may have. So with both "auto" a step depends on the data alone, and memory
/// decides only how it is cut.
[[nodiscard]] std::uint32_t micro_batches_for(const BatchWish& wish, std::uint32_t batch_size);

/// One line for the log: what is used, and why.
[[nodiscard]] std::string describe(const BatchWish& wish, std::uint32_t batch_size, const std::string& of_memory = "");

/// What is to be said of a run's steps: how its epochs come to them, or that it has rows several times a step. Its text
/// is empty where nothing is.
[[nodiscard]] LogEvent steps_line(const TrainingSpec& training, std::uint64_t rows, std::uint64_t total_steps,
                                  bool ends_epochs);

}  // namespace distilld
