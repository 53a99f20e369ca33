#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "models/families/decoder_config.hpp"
#include "models/families/model_family.hpp"
#include "models/network/dropout.hpp"
#include "models/network/linear.hpp"
#include "models/network/parameter.hpp"

namespace distilld::models {

/// The place and the names under which the parts of a layer are declared. Valid during a constructor.
struct LayerPlace {
    ParameterGroup& group;
    const DecoderConfig& config;
    const DecoderNames& names;
    const std::uint64_t& dropout_seed;  ///< outlives the parts
    std::int64_t number = 0;            ///< the layer's number, from 0
    std::string prefix;                 ///< prefix of all names in the layer

    /// The form of a projection back into the residual stream.
    [[nodiscard]] LinearForm into_stream(bool bias) const {
        const double layers = static_cast<double>(config.num_hidden_layers);
        const double scale = config.scaled_residual_init ? 1.0 / std::sqrt(2.0 * layers) : 1.0;
        return {.bias = bias, .transposed = config.transposed_linears, .initial_scale = scale};
    }
    [[nodiscard]] std::string name(const char* part) const { return prefix + part; }
};

}  // namespace distilld::models
