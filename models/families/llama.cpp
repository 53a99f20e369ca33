#include "models/families/llama.hpp"

#include <boost/json.hpp>

#include "models/families/config_fields.hpp"
#include "models/families/decoder_fields.hpp"
#include "models/families/rope_fields.hpp"

namespace distilld::models {

namespace json = boost::json;

void parse_llama(JsonMembers& config, DecoderConfig& decoder) {
    require_text(config, "hidden_act", "silu");
    read_decoder_fields(config, decoder);
    read_rope_fields(config, decoder);
    config.real_from("rms_norm_eps", decoder.norm_epsilon, 0.0, true);
    bool attention_bias = false;
    config.boolean("attention_bias", attention_bias);
    decoder.query_key_value_bias = attention_bias;
    decoder.attention_output_bias = attention_bias;
    config.boolean("mlp_bias", decoder.mlp_bias);
}

void write_llama(const DecoderConfig& decoder, json::object& config) {
    config["architectures"] = json::array{"LlamaForCausalLM"};
    config["hidden_act"] = "silu";
    config["rms_norm_eps"] = decoder.norm_epsilon;
    config["attention_bias"] = decoder.query_key_value_bias;
    config["mlp_bias"] = decoder.mlp_bias;
    write_decoder_fields(decoder, config);
    write_rope_fields(decoder, config);
}

}  // namespace distilld::models
