#pragma once

#include <cstdint>
#include <span>

namespace distilld {

/// The stored entries of a position: ids, their log-probabilities, and the log of the mass outside, spread evenly over
/// all other tokens. The masses need not sum to 1: they are normalised, as in the loss.
struct StoredDistribution {
    std::span<const std::int32_t> ids;
    std::span<const float> values;
    float tail = 0;
};

/// KL(teacher ‖ stored) over the whole vocabulary, in nats: the loss of information by storing. `logits` are the
/// teacher's. Infinite if a token with a probability has none in the store.
[[nodiscard]] double kl_teacher_stored(std::span<const float> logits, const StoredDistribution& stored);

/// KL(stored ‖ teacher), in nats.
[[nodiscard]] double kl_stored_teacher(std::span<const float> logits, const StoredDistribution& stored);

}  // namespace distilld
