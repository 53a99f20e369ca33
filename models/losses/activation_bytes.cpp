#include "models/losses/activation_bytes.hpp"

#include <algorithm>

#include "base/saturating.hpp"
#include "models/losses/loss_chunks.hpp"

namespace distilld::models {

std::uint64_t activation_bytes(const DecoderConfig& decoder, std::uint64_t positions, std::uint64_t element,
                               bool gradient_checkpointing, bool on_cpu) {
    const auto hidden = static_cast<std::uint64_t>(decoder.hidden_size);
    const auto inner = static_cast<std::uint64_t>(decoder.intermediate_size);
    const auto queries = static_cast<std::uint64_t>(decoder.num_attention_heads * decoder.head_dim);
    const auto keys = static_cast<std::uint64_t>(decoder.num_key_value_heads * decoder.head_dim);
    const auto layers = static_cast<std::uint64_t>(decoder.num_hidden_layers);
    // Per layer: inputs and outputs of its norms; queries and keys before and after rotation, values and the result of
    // attention; inputs, intermediates and outputs of the activation. The kernels of the CPU keep about a quarter less.
    const std::uint64_t layer = 5 * hidden + 3 * queries + 4 * keys + (decoder.gated_mlp ? 4 : 2) * inner;
    const std::uint64_t kept = gradient_checkpointing ? layers * hidden + layer : layers * layer;
    const auto vocabulary = static_cast<std::uint64_t>(decoder.vocab_size);
    const auto most = static_cast<std::uint64_t>(loss_chunk_rows(decoder.vocab_size, on_cpu));
    const std::uint64_t loss = std::min(positions, most) * vocabulary * sizeof(float);
    // The logits, which become their gradient, and the same again for the teacher's targets and blocks of both.
    return saturating_sum(saturating_product(element * positions, kept + 3 * hidden), 2 * loss);
}

}  // namespace distilld::models
