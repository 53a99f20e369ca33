#pragma once

#include <boost/json/fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/json_members.hpp"
#include "models/families/model_family.hpp"
#include "pipeline/core/special_tokens.hpp"

namespace distilld::models {

/// `base_json` with the fields of `override_json` (either may be empty), as JSON text. Drops a dependent size of the
/// base (head_dim, num_key_value_heads) if the override changes what it depends on (hidden_size, num_attention_heads)
/// but not the size itself. Any rope form of the override replaces all of the base's. `base_place` and `override_place`
/// start the messages.
Result<std::string> merge_config_json(std::string_view base_json, const JsonPlace& base_place,
                                      std::string_view override_json, const JsonPlace& override_place);

/// Puts the ids into the config and its generation_config.json, if there is one.
void set_special_tokens(ModelConfig& config, const SpecialTokens& special);

/// A config.json for transformers 4.x and 5.x: both rope forms, both names of the dtype. Unknown fields of
/// config.source_json (may be empty) are kept. `dtype` is "float32", "bfloat16" or "float16".
std::string to_config_json(const ModelConfig& config, std::string_view dtype);

/// JSON in the style of transformers: sorted keys, two spaces.
[[nodiscard]] std::string pretty_json(const boost::json::object& object);

/// generation_config.json: the source's, or else a new one with the ids of `config`.
std::string to_generation_config_json(const ModelConfig& config);

/// Every token that ends an answer: eos_token_id of config.json and of generation_config.json, ascending.
[[nodiscard]] std::vector<std::int32_t> end_token_ids(const ModelConfig& config);

}  // namespace distilld::models
