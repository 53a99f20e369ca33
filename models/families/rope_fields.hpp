#pragma once

#include <boost/json/fwd.hpp>

#include "base/json_members.hpp"
#include "models/families/decoder_config.hpp"

namespace distilld::models {

/// rope_parameters (transformers 5.x), or rope_theta with rope_scaling (4.x). Written are both. After
/// read_decoder_fields(): a scaling's original length defaults to max_position_embeddings.
void read_rope_fields(JsonMembers& config, DecoderConfig& decoder);
void write_rope_fields(const DecoderConfig& decoder, boost::json::object& config);

}  // namespace distilld::models
