#pragma once

#include <boost/json/fwd.hpp>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "base/json_members.hpp"
#include "models/families/model_family.hpp"
#include "pipeline/core/special_tokens.hpp"

namespace distilld::models {

/// The fields of `override_json` put over those of `base_json` (either may be empty), as JSON text. A size that
/// depends on another (head_dim, num_key_value_heads) is dropped from the base when the override changes what it
/// depends on (hidden_size, num_attention_heads) without naming it; rope forms of the base give way to any of the
/// override's. `base_place` and `override_place` start the messages.
Result<std::string> merge_config_json(std::string_view base_json, const JsonPlace& base_place,
                                      std::string_view override_json, const JsonPlace& override_place);

/// Puts the ids into the description and, where there is one, into the generation_config.json that goes with it.
void set_special_tokens(ModelConfig& config, const SpecialTokens& special);

/// A config.json that transformers 4.x and 5.x load: both rope forms, both names of the dtype. Unknown fields of
/// config.source_json (may be empty) are kept. `dtype` is "float32", "bfloat16" or "float16".
std::string to_config_json(const ModelConfig& config, std::string_view dtype);

/// As transformers writes JSON: sorted keys, two spaces.
[[nodiscard]] std::string pretty_json(const boost::json::object& object);

/// generation_config.json: the source's when there is one, else one with the ids of `config`.
std::string to_generation_config_json(const ModelConfig& config);

}  // namespace distilld::models
