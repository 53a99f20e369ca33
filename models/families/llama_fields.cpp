#include "models/families/llama_fields.hpp"

#include <boost/json.hpp>

#include "models/families/config_fields.hpp"
#include "models/families/rope_fields.hpp"

namespace distilld::models {

namespace json = boost::json;

void read_llama_fields(JsonMembers& config, DecoderConfig& decoder, const AbsentSizes& absent) {
    require_text(config, "hidden_act", "silu");
    read_decoder_fields(config, decoder, absent);
    read_rope_fields(config, decoder);
    config.real_from("rms_norm_eps", decoder.norm_epsilon, 0.0, true);
}

void read_attention_bias(JsonMembers& config, DecoderConfig& decoder) {
    bool attention_bias = false;
    config.boolean("attention_bias", attention_bias);
    decoder.query_key_value_bias = attention_bias;
    decoder.attention_output_bias = attention_bias;
}

void write_llama_fields(const DecoderConfig& decoder, json::object& config, std::string_view architecture,
                        std::initializer_list<std::pair<std::string_view, json::value>> own) {
    config["architectures"] = json::array{json::string(architecture)};
    config["hidden_act"] = "silu";
    config["rms_norm_eps"] = decoder.norm_epsilon;
    for (const auto& [name, value] : own) {
        config[name] = value;
    }
    write_decoder_fields(decoder, config);
    write_rope_fields(decoder, config);
}

}  // namespace distilld::models
