#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace distilld::kserve {

/// What a server says of a model beside the protocol: Triton's `GET /v2/models/{model}/config`
/// (triton-inference-server/server docs/protocol/extension_model_configuration.md).
struct ModelConfig {
    std::uint64_t max_batch_size = 0;          ///< sequences of one request; 0 = no limit is known
    std::vector<std::string> required_inputs;  ///< names of those that a request must have; empty = not known
};

/// The error says what the text is not.
[[nodiscard]] Result<ModelConfig> parse_model_config(std::string_view json);

}  // namespace distilld::kserve
