#pragma once

#include <cstdint>
#include <string>

namespace distilld::models {

/// A loss over random inputs.
struct LossShape {
    std::int64_t rows = 4096;
    std::int64_t hidden = 1024;
    std::int64_t vocabulary = 32000;
    std::int64_t top_k = 64;  ///< of the teacher; 0: full logits
    bool bf16 = false;        ///< of hidden states and head
    double beta = 0;
    std::int64_t chunk_rows = 0;  ///< 0: what training takes
    std::uint32_t repeat = 5;
};

struct LossSpeed {
    double seconds = 0;            ///< of one call with gradients, the median
    double gemm_flops = 0;         ///< floating point operations a second of the chunk's logits alone, measured in turn
    double share_of_gemm = 0;      ///< of a call, the part that its three matrix products take at that rate
    std::uint64_t peak_bytes = 0;  ///< most tensors of libtorch that a call held beside its inputs, on the CPU
    std::int64_t chunk_rows = 0;
};

/// Measures distill_loss() on the CPU, with libtorch's threads as they are. Torch-free header.
[[nodiscard]] LossSpeed measure_loss(const LossShape& shape);

}  // namespace distilld::models
