#pragma once

#include <vector>

#include "models/kernels/bf16_blocks.hpp"

namespace distilld::kernels {

/// All that this processor has.
inline std::vector<Bf16Instructions> instructions_here() {
    switch (bf16_instructions()) {
        case Bf16Instructions::none:
            return {};
        case Bf16Instructions::dots:
            return {Bf16Instructions::dots};
        case Bf16Instructions::tiles:
            return {Bf16Instructions::dots, Bf16Instructions::tiles};
    }
    return {};
}

}  // namespace distilld::kernels
