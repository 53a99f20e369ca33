#pragma once

#include <cstdint>

#include "base/error.hpp"
#include "pipeline/store/store_reader.hpp"

namespace distilld {

/// What storing has cost, in nats a token, over the whole vocabulary: a store against one of the same data that has
/// logits. The mass outside the stored entries stands for an even share for each token there.
struct StoreError {
    std::uint64_t tokens = 0;
    double kl_teacher_stored = 0;  ///< mean KL(teacher ‖ stored); infinite where a token has a probability but no entry
                                   ///< and no tail (sampled)
    double kl_stored_teacher = 0;  ///< mean KL(stored ‖ teacher)
};

/// Over the rows that both have, at most `max_rows` of them. An error (invalid_input) when `full` has no logits or the
/// two are of different datasets or vocabularies.
Result<StoreError> measure_error(StoreReader& stored, StoreReader& full, std::uint64_t max_rows);

}  // namespace distilld
