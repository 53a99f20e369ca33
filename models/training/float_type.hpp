#pragma once

#include <torch/types.h>

#include "pipeline/core/micro_batch.hpp"

namespace distilld::models {

/// Torch's type for an array of floats that a teacher sent.
[[nodiscard]] inline torch::ScalarType float_type(ElementType type) noexcept {
    switch (type) {
        case ElementType::f16:
            return torch::kHalf;
        case ElementType::bf16:
            return torch::kBFloat16;
        default:
            return torch::kFloat;
    }
}

}  // namespace distilld::models
