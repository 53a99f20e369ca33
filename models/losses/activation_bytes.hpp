#pragma once

#include <cstdint>

#include "models/families/decoder_config.hpp"

namespace distilld::models {

/// What backward keeps from forward for `positions`, and the loss: an estimate. `element`: bytes per element of the
/// arithmetic. Saturates. Needs no libtorch.
[[nodiscard]] std::uint64_t activation_bytes(const DecoderConfig& decoder, std::uint64_t positions,
                                             std::uint64_t element, bool gradient_checkpointing, bool on_cpu);

}  // namespace distilld::models
