#include "models/families/mistral.hpp"

#include <boost/json.hpp>

#include "models/families/llama_fields.hpp"

namespace distilld::models {

namespace json = boost::json;

namespace {

constexpr std::int64_t kMaxWindow = std::int64_t{1} << 30;

}  // namespace

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

}  // namespace distilld::models
