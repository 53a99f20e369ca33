#pragma once

#include <cstdint>
#include <optional>
#include <variant>

/// Extends rotary positions beyond the length that a model was trained with (transformers: rope_parameters).
namespace distilld::models {

/// rope_type "linear" stretches all wavelengths (arXiv 2306.15595).
struct LinearRopeScaling {
    double factor = 1.0;
};

/// rope_type "llama3", as in Llama 3.1, stretches long wavelengths.
struct Llama3RopeScaling {
    double factor = 8.0;
    double low_freq_factor = 1.0;
    double high_freq_factor = 4.0;
    std::int64_t original_max_position_embeddings = 8192;
};

/// rope_type "yarn" (arXiv 2309.00071) depends on the number of rotations within the original length.
struct YarnRopeScaling {
    double factor = 1.0;
    std::optional<double> attention_factor;  ///< for cos and sin; absent: follows from factor and the next two
    std::optional<double> mscale;
    std::optional<double> mscale_all_dim;
    std::optional<double> beta_fast;  ///< absent: 32
    std::optional<double> beta_slow;  ///< absent: 1
    std::optional<bool> truncate;     ///< absent: true
    std::int64_t original_max_position_embeddings = 2048;
};

using RopeScaling = std::variant<LinearRopeScaling, Llama3RopeScaling, YarnRopeScaling>;

}  // namespace distilld::models
