#include "models/families/qwen2.hpp"

#include <boost/json.hpp>

#include "models/families/llama_fields.hpp"

namespace distilld::models {

namespace json = boost::json;

void parse_qwen2(JsonMembers& config, DecoderConfig& decoder) {
    decoder.vocab_size = 151936;
    decoder.intermediate_size = 22016;
    decoder.max_position_embeddings = 32768;
    decoder.bos_token_id = std::nullopt;
    decoder.eos_token_ids.clear();
    decoder.query_key_value_bias = true;
    read_llama_fields(config, decoder, {.num_key_value_heads = 32, .head_dim = std::nullopt});
}

void write_qwen2(const DecoderConfig& decoder, json::object& config) {
    write_llama_fields(decoder, config, "Qwen2ForCausalLM", {{"use_sliding_window", false}});
}

}  // namespace distilld::models
