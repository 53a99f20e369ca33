#pragma once

#include <boost/json/fwd.hpp>

#include "base/json_members.hpp"
#include "models/families/decoder_config.hpp"

/// What the config.json files of the families have in common. Readers keep the first error in `config`.
namespace distilld::models {

/// Sizes, initializer_range, tie_word_embeddings and token ids. Refused: quantized weights, sizes that are not
/// positive, do not divide or are absurdly large.
void read_decoder_fields(JsonMembers& config, DecoderConfig& decoder);
void write_decoder_fields(const DecoderConfig& decoder, boost::json::object& config);

/// rope_parameters (transformers 5.x), or rope_theta with rope_scaling (4.x). Written are both. After
/// read_decoder_fields(): a scaling's original length defaults to max_position_embeddings.
void read_rope_fields(JsonMembers& config, DecoderConfig& decoder);
void write_rope_fields(const DecoderConfig& decoder, boost::json::object& config);

/// JSON: null, one id or a list.
[[nodiscard]] boost::json::value eos_value(const DecoderConfig& decoder);

}  // namespace distilld::models
