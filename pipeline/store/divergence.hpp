#pragma once

#include <cstdint>
#include <span>

namespace distilld {

/// What is stored of a position: ids, their log-probabilities, and the log of the mass outside them, which stands for
/// an even share for each other token of the vocabulary. Need not sum to 1: it is normalised, as the loss does it.
struct StoredDistribution {
    std::span<const std::int32_t> ids;
    std::span<const float> values;
    float tail = 0;
};

/// KL(teacher ‖ stored) over the whole vocabulary, in nats: what is lost by storing. `logits` are the teacher's.
/// Infinite where a token with probability has none in the store.
[[nodiscard]] double kl_teacher_stored(std::span<const float> logits, const StoredDistribution& stored);

/// KL(stored ‖ teacher), in nats.
[[nodiscard]] double kl_stored_teacher(std::span<const float> logits, const StoredDistribution& stored);

}  // namespace distilld
