#pragma once

#include <cstdint>
#include <vector>

#include "models/network/causal_lm.hpp"
#include "pipeline/graph/student.hpp"

namespace distilld::models {

/// Continues `prompt` (at least one id): the new ids, without the end of text. One forward pass over the last
/// max_positions() ids per token. Drawn tokens come from a generator of options.seed alone.
[[nodiscard]] std::vector<std::int32_t> sample_tokens(CausalLm& network, std::vector<std::int32_t> prompt,
                                                      const SampleOptions& options);

}  // namespace distilld::models
