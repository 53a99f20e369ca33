#pragma once

#include <cstdint>
#include <optional>

#include "server/protocol/worker_messages.hpp"

namespace distilld {

/// How the steps of a job are split: rows per micro-batch, and micro-batches per step.
struct MicroBatches {
    std::uint32_t batch_size = 0;  ///< 0 = unknown
    std::uint32_t micro_batches = 0;
    bool operator==(const MicroBatches&) const = default;
};

/// The same steps with half as many rows per micro-batch. nullopt if the number of rows is odd or unknown, or a spec
/// may not have so many micro-batches.
[[nodiscard]] std::optional<MicroBatches> halved(const MicroBatches& of);

/// Sets these micro-batches in the spec, as text and as value. std::invalid_argument if it is not a JSON object.
void take_micro_batches(WorkerStart& start, const MicroBatches& micro_batches);

}  // namespace distilld
