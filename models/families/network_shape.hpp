#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/families/model_family.hpp"

namespace distilld::models {

/// A linear module of a layer.
struct LinearShape {
    std::string name;  ///< name within its layer ("self_attn.q_proj")
    std::uint64_t inputs = 0;
    std::uint64_t outputs = 0;
    bool bias = false;

    [[nodiscard]] std::uint64_t parameters() const { return inputs * outputs + (bias ? outputs : 0); }
};

/// Parameter counts of a decoder, from its configuration alone, without libtorch.
struct NetworkShape {
    std::uint64_t layers = 0;
    std::vector<LinearShape> linears;  ///< linear modules of one layer
    std::uint64_t embedding = 0;       ///< includes learned positions
    std::uint64_t norms_of_layer = 0;
    std::uint64_t final_norm = 0;
    std::uint64_t head = 0;  ///< 0: the head is the embedding

    [[nodiscard]] std::uint64_t parameters() const;
};

[[nodiscard]] NetworkShape network_shape(const ModelConfig& config);

}  // namespace distilld::models
