#pragma once

#include <cstdint>
#include <vector>

#include "models/network/causal_lm.hpp"
#include "pipeline/graph/student.hpp"

namespace distilld::models {

/// How the network goes on from `prompt` (at least one id): the new ids, without the one that ends a text. A forward
/// pass over all of it a token, of which the network sees the last max_positions(). Drawn tokens come from a generator
/// of options.seed alone.
[[nodiscard]] std::vector<std::int32_t> sample_tokens(CausalLm& network, std::vector<std::int32_t> prompt,
                                                      const SampleOptions& options);

}  // namespace distilld::models
