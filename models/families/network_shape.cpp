#include "models/families/network_shape.hpp"

namespace distilld::models {
std::uint64_t NetworkShape::parameters() const {
    std::uint64_t layer = norms_of_layer;
    for (const LinearShape& linear : linears) {
        layer += linear.parameters();
    }
    return embedding + layers * layer + final_norm + head;
}

NetworkShape network_shape(const ModelConfig& config) {
    const DecoderConfig& decoder = config.decoder;
    const DecoderNames& names = config.family->names;
    const auto hidden = static_cast<std::uint64_t>(decoder.hidden_size);
    const auto inner = static_cast<std::uint64_t>(decoder.intermediate_size);
    const auto head_dim = static_cast<std::uint64_t>(decoder.head_dim);
    const auto queries = static_cast<std::uint64_t>(decoder.num_attention_heads) * head_dim;
    const auto keys = static_cast<std::uint64_t>(decoder.num_key_value_heads) * head_dim;
    const auto vocabulary = static_cast<std::uint64_t>(decoder.vocab_size);

    NetworkShape shape;
    shape.layers = static_cast<std::uint64_t>(decoder.num_hidden_layers);
    const bool bias = decoder.query_key_value_bias;
    if (decoder.fused_query_key_value) {
        shape.linears.push_back({names.query, hidden, queries + 2 * keys, bias});
    } else {
        shape.linears.push_back({names.query, hidden, queries, bias});
        shape.linears.push_back({names.key, hidden, keys, bias});
        shape.linears.push_back({names.value, hidden, keys, bias});
    }
    shape.linears.push_back({names.output, queries, hidden, decoder.attention_output_bias});
    if (decoder.gated_mlp) {
        shape.linears.push_back({names.gate, hidden, inner, decoder.mlp_bias});
    }
    shape.linears.push_back({names.up, hidden, inner, decoder.mlp_bias});
    shape.linears.push_back({names.down, inner, hidden, decoder.mlp_bias});

    const std::uint64_t norm = decoder.norm == NormKind::layer ? 2 * hidden : hidden;
    shape.norms_of_layer = 2 * norm + (decoder.query_key_norm ? 2 * head_dim : 0);
    shape.final_norm = norm;
    shape.embedding = vocabulary * hidden;
    if (decoder.positions == PositionKind::learned) {
        shape.embedding += static_cast<std::uint64_t>(decoder.max_position_embeddings) * hidden;
    }
    shape.head = decoder.tie_word_embeddings ? 0 : vocabulary * hidden;
    return shape;
}

}  // namespace distilld::models
