#include "models/families/llama.hpp"

#include <boost/json.hpp>

#include "models/families/llama_fields.hpp"

namespace distilld::models {

namespace json = boost::json;

void parse_llama(JsonMembers& config, DecoderConfig& decoder) {
    read_llama_fields(config, decoder);
    read_attention_bias(config, decoder);
    config.boolean("mlp_bias", decoder.mlp_bias);
}

void write_llama(const DecoderConfig& decoder, json::object& config) {
    write_llama_fields(decoder, config, "LlamaForCausalLM",
                       {{"attention_bias", decoder.query_key_value_bias}, {"mlp_bias", decoder.mlp_bias}});
}

}  // namespace distilld::models
