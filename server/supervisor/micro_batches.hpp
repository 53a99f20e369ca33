#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace distilld {

/// How the steps of a job are cut: rows of a micro-batch, and micro-batches of a step.
struct MicroBatches {
    std::uint32_t batch_size = 0;  ///< 0 = not known
    std::uint32_t micro_batches = 0;
    bool operator==(const MicroBatches&) const = default;
};

/// The same steps in micro-batches of half as many rows. Nothing: the rows are odd, not known, or there would be more
/// micro-batches than a spec may ask for.
[[nodiscard]] std::optional<MicroBatches> halved(const MicroBatches& of);

/// The spec's JSON text with these micro-batches. std::invalid_argument when it is no JSON object.
[[nodiscard]] std::string with_micro_batches(const std::string& spec_json, const MicroBatches& micro_batches);

}  // namespace distilld
