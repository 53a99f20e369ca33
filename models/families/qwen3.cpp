#include "models/families/qwen3.hpp"

#include <boost/json.hpp>

#include "models/families/llama_fields.hpp"

namespace distilld::models {

namespace json = boost::json;

void parse_qwen3(JsonMembers& config, DecoderConfig& decoder) {
    decoder.vocab_size = 151936;
    decoder.intermediate_size = 22016;
    decoder.max_position_embeddings = 32768;
    decoder.bos_token_id = std::nullopt;
    decoder.eos_token_ids.clear();
    decoder.query_key_norm = true;
    read_llama_fields(config, decoder, {.num_key_value_heads = 32, .head_dim = 128});
    read_attention_bias(config, decoder);
}

void write_qwen3(const DecoderConfig& decoder, json::object& config) {
    write_llama_fields(decoder, config, "Qwen3ForCausalLM",
                       {{"attention_bias", decoder.query_key_value_bias}, {"use_sliding_window", false}});
}

}  // namespace distilld::models
