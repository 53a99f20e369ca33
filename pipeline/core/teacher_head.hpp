#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "pipeline/core/micro_batch.hpp"

namespace distilld {

/// The matrix that turns a teacher's hidden states into logits: logits = hidden · headᵀ. No bias, no scale, no cap on
/// the logits: a model with any of these does not offer its hidden states.
struct TeacherHead {
    std::uint32_t rows = 0;     ///< V: tokens
    std::uint32_t columns = 0;  ///< H: width of the hidden states
    ArrayView values;           ///< [V, H] f16, bf16 or f32
    std::string sha256;         ///< of its file, 64 lower-case hex digits
    std::shared_ptr<const void> owner;
};

}  // namespace distilld
