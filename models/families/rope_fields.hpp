#pragma once

#include <boost/json/fwd.hpp>

#include "base/json_members.hpp"
#include "models/families/decoder_config.hpp"

namespace distilld::models {

/// rope_parameters (transformers 5.x), or rope_theta with rope_scaling (4.x). Both are written. Call after
/// read_decoder_fields(): the original length defaults to max_position_embeddings.
void read_rope_fields(JsonMembers& config, DecoderConfig& decoder);
void write_rope_fields(const DecoderConfig& decoder, boost::json::object& config);

}  // namespace distilld::models
