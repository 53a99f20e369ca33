#pragma once

#include <cstdint>
#include <string>

#include "pipeline/core/spec_sections.hpp"
#include "pipeline/core/worker_events.hpp"

namespace distilld {

/// How a spec splits steps, and the number of rows.
struct BatchWish {
    std::uint64_t rows = 0;           ///< of the dataset
    std::uint32_t batch_size = 0;     ///< 0: "auto"
    std::uint32_t micro_batches = 0;  ///< 0: "auto"
};

[[nodiscard]] BatchWish wish_of(const TrainingSpec& training, std::uint64_t rows) noexcept;

/// Minimum number of steps per epoch, if there are enough rows. With fewer steps, a student learns little.
inline constexpr std::uint64_t kMinStepsOfEpoch = 32;
/// Maximum number of sequences in a micro-batch, or in a step with micro_batches "auto".
inline constexpr std::uint32_t kMaxAutomaticSequences = 64;

/// Upper limit of an automatic batch size: a power of two.
[[nodiscard]] std::uint32_t max_batch_size(const BatchWish& wish);

/// Micro-batches per step, with `batch_size` rows each: the spec's number or, for "auto", as many as the maximum of
/// sequences per step allows. So with both "auto", a step depends only on the data, and memory only decides how it is
/// split.
[[nodiscard]] std::uint32_t micro_batches_for(const BatchWish& wish, std::uint32_t batch_size);

/// Maximum number of micro-batches that train at once.
inline constexpr std::uint32_t kMaxReplicas = 16;
/// The largest network, in parameters, that is no slower with one micro-batch per core than with all cores on one
/// micro-batch (measured by `distilld-bench train --replicas`; bench/README.md).
inline constexpr std::uint64_t kMaxParametersOfReplicas = 8'000'000;

/// What decides replicas "auto".
struct ReplicaWish {
    std::uint32_t threads = 1;
    std::uint32_t micro_batches = 1;     ///< per step
    std::uint64_t parameters = 0;        ///< of the network, including those that are not trained
    std::uint64_t activation_bytes = 0;  ///< of one micro-batch
    std::uint64_t available_bytes = 0;
};

/// The value of replicas "auto" on a CPU: one per thread for a small network, as far as micro-batches and memory
/// suffice, otherwise 1.
[[nodiscard]] std::uint32_t automatic_replicas(const ReplicaWish& wish) noexcept;

/// One line for the log: the chosen sizes, and why.
[[nodiscard]] std::string describe(const BatchWish& wish, std::uint32_t batch_size, const std::string& of_memory = "");

/// A note on a run's steps: how they follow from its epochs, or that steps repeat rows. The text is empty if there is
/// nothing to say.
[[nodiscard]] LogEvent steps_line(const TrainingSpec& training, std::uint64_t rows, std::uint64_t total_steps,
                                  bool ends_epochs);

}  // namespace distilld
