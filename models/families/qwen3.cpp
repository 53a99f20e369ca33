#include "models/families/qwen3.hpp"

#include <boost/json.hpp>

#include "models/families/config_fields.hpp"
#include "models/families/decoder_fields.hpp"
#include "models/families/rope_fields.hpp"

namespace distilld::models {

namespace json = boost::json;

void parse_qwen3(JsonMembers& config, DecoderConfig& decoder) {
    decoder.vocab_size = 151936;
    decoder.intermediate_size = 22016;
    decoder.max_position_embeddings = 32768;
    decoder.bos_token_id = std::nullopt;
    decoder.eos_token_ids.clear();
    decoder.query_key_norm = true;
    require_text(config, "hidden_act", "silu");
    read_decoder_fields(config, decoder, {.num_key_value_heads = 32, .head_dim = 128});
    read_rope_fields(config, decoder);
    config.real_from("rms_norm_eps", decoder.norm_epsilon, 0.0, true);
    bool attention_bias = false;
    config.boolean("attention_bias", attention_bias);
    decoder.query_key_value_bias = attention_bias;
    decoder.attention_output_bias = attention_bias;
}

void write_qwen3(const DecoderConfig& decoder, json::object& config) {
    config["architectures"] = json::array{"Qwen3ForCausalLM"};
    config["hidden_act"] = "silu";
    config["rms_norm_eps"] = decoder.norm_epsilon;
    config["attention_bias"] = decoder.query_key_value_bias;
    config["use_sliding_window"] = false;
    write_decoder_fields(decoder, config);
    write_rope_fields(decoder, config);
}

}  // namespace distilld::models
