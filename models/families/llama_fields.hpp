#pragma once

#include <boost/json/value.hpp>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "models/families/decoder_fields.hpp"

/// What the config.json files of Llama and of the families made like it have in common beside decoder_fields.hpp:
/// hidden_act, rotary positions, rms_norm_eps. Readers keep the first error in `config`.
namespace distilld::models {

void read_llama_fields(JsonMembers& config, DecoderConfig& decoder, const AbsentSizes& absent = {});

/// A bias of all four projections.
void read_attention_bias(JsonMembers& config, DecoderConfig& decoder);

/// The family's own fields come before those that all decoders have.
void write_llama_fields(const DecoderConfig& decoder, boost::json::object& config, std::string_view architecture,
                        std::initializer_list<std::pair<std::string_view, boost::json::value>> own);

}  // namespace distilld::models
