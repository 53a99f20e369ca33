#include "models/families/llama.hpp"

#include <boost/json.hpp>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>

#include "models/families/config_fields.hpp"
#include "models/families/decoder_fields.hpp"
#include "models/families/rope_fields.hpp"

namespace distilld::models {

namespace json = boost::json;

namespace {

void read_llama_fields(JsonMembers& config, DecoderConfig& decoder, const AbsentSizes& absent = {}) {
    require_text(config, "hidden_act", "silu");
    read_decoder_fields(config, decoder, absent);
    read_rope_fields(config, decoder);
    config.real_from("rms_norm_eps", decoder.norm_epsilon, 0.0, true);
}

/// Reads one flag for the biases of all four projections.
void read_attention_bias(JsonMembers& config, DecoderConfig& decoder) {
    bool attention_bias = false;
    config.boolean("attention_bias", attention_bias);
    decoder.query_key_value_bias = attention_bias;
    decoder.attention_output_bias = attention_bias;
}

/// Writes the family's own fields before the shared ones.
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

constexpr std::int64_t kMaxWindow = std::int64_t{1} << 30;

}  // namespace

void parse_llama(JsonMembers& config, DecoderConfig& decoder) {
    read_llama_fields(config, decoder);
    read_attention_bias(config, decoder);
    config.boolean("mlp_bias", decoder.mlp_bias);
}

void write_llama(const DecoderConfig& decoder, json::object& config) {
    write_llama_fields(decoder, config, "LlamaForCausalLM",
                       {{"attention_bias", decoder.query_key_value_bias}, {"mlp_bias", decoder.mlp_bias}});
}

void parse_mistral(JsonMembers& config, DecoderConfig& decoder) {
    decoder.intermediate_size = 14336;
    decoder.max_position_embeddings = 131072;
    read_llama_fields(config, decoder, {.num_key_value_heads = 8, .head_dim = std::nullopt});
    const json::value* window = config.members().if_contains("sliding_window");
    if (window == nullptr || !window->is_null()) {
        std::int64_t size = 4096;
        config.integer("sliding_window", size, std::int64_t{1}, kMaxWindow);
        decoder.sliding_window = size;
    }
}

void write_mistral(const DecoderConfig& decoder, json::object& config) {
    const auto window = decoder.sliding_window ? json::value(*decoder.sliding_window) : json::value(nullptr);
    write_llama_fields(decoder, config, "MistralForCausalLM", {{"sliding_window", window}});
}

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
