#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/families/rope_scaling.hpp"

namespace distilld::models {

enum class NormKind {
    rms,
    layer,  ///< with a bias
};

enum class PositionKind {
    rotary,
    learned,  ///< a table of max_position_embeddings rows, added to the embeddings
};

enum class Activation { silu, gelu, gelu_tanh, relu };

/// Dropout rates in training, each in [0, 1).
struct DropoutRates {
    double embedding = 0.0;  ///< for the sum of embeddings and positions
    double attention = 0.0;  ///< for the attention weights
    double residual = 0.0;   ///< for a block's output to the residual stream
};

/// The architecture of a decoder of any family. Names, meanings and defaults are those of transformers' LlamaConfig;
/// families with other defaults set them in their own files.
struct DecoderConfig {
    std::int64_t vocab_size = 32000;
    std::int64_t hidden_size = 4096;
    std::int64_t intermediate_size = 11008;
    std::int64_t num_hidden_layers = 32;
    std::int64_t num_attention_heads = 32;
    std::int64_t num_key_value_heads = 32;  ///< absent in JSON: num_attention_heads
    std::int64_t head_dim = 128;            ///< absent in JSON: hidden_size / num_attention_heads
    std::int64_t max_position_embeddings = 2048;
    double norm_epsilon = 1e-6;
    double rope_theta = 10000.0;
    std::optional<RopeScaling> rope_scaling;  ///< absent: rope_type "default"
    bool tie_word_embeddings = false;
    bool query_key_value_bias = false;
    bool query_key_norm = false;                 ///< an RMS norm over head_dim before the rotation
    std::optional<std::int64_t> sliding_window;  ///< each position sees this many last positions, including itself
    bool attention_output_bias = false;
    bool mlp_bias = false;
    NormKind norm = NormKind::rms;
    PositionKind positions = PositionKind::rotary;
    Activation activation = Activation::silu;
    bool gated_mlp = true;                ///< down(act(gate) · up); without: down(act(up))
    bool fused_query_key_value = false;   ///< one projection computes all three
    bool transposed_linears = false;      ///< files hold weights as [inputs, outputs] (transformers' Conv1D)
    bool scaled_scores = true;            ///< attention scores are divided by √head_dim
    bool scores_scaled_by_layer = false;  ///< and by the layer's number, from 1
    bool scores_in_fp32 = false;          ///< for every compute dtype
    bool scaled_residual_init = false;    ///< output projections of blocks start smaller by √(2 · num_hidden_layers)
    DropoutRates dropout;
    double initializer_range = 0.02;
    std::optional<std::int64_t> bos_token_id = 1;
    std::vector<std::int64_t> eos_token_ids = {2};  ///< JSON: one id, a list, or null
    std::optional<std::int64_t> pad_token_id;
};

}  // namespace distilld::models
