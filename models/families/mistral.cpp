#include "models/families/mistral.hpp"

#include <boost/json.hpp>

#include "models/families/config_fields.hpp"
#include "models/families/decoder_fields.hpp"
#include "models/families/rope_fields.hpp"

namespace distilld::models {

namespace json = boost::json;

namespace {

constexpr std::int64_t kMaxWindow = std::int64_t{1} << 30;

}  // namespace

void parse_mistral(JsonMembers& config, DecoderConfig& decoder) {
    decoder.intermediate_size = 14336;
    decoder.max_position_embeddings = 131072;
    require_text(config, "hidden_act", "silu");
    read_decoder_fields(config, decoder, {.num_key_value_heads = 8, .head_dim = std::nullopt});
    read_rope_fields(config, decoder);
    config.real_from("rms_norm_eps", decoder.norm_epsilon, 0.0, true);
    const json::value* window = config.members().if_contains("sliding_window");
    if (window == nullptr || !window->is_null()) {
        std::int64_t size = 4096;
        config.integer("sliding_window", size, std::int64_t{1}, kMaxWindow);
        decoder.sliding_window = size;
    }
}

void write_mistral(const DecoderConfig& decoder, json::object& config) {
    config["architectures"] = json::array{"MistralForCausalLM"};
    config["hidden_act"] = "silu";
    config["rms_norm_eps"] = decoder.norm_epsilon;
    config["sliding_window"] = decoder.sliding_window ? json::value(*decoder.sliding_window) : json::value(nullptr);
    write_decoder_fields(decoder, config);
    write_rope_fields(decoder, config);
}

}  // namespace distilld::models
