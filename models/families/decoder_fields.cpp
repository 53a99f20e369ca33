#include "models/families/decoder_fields.hpp"

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "models/families/config_fields.hpp"

namespace distilld::models {

namespace json = boost::json;

namespace {

constexpr std::int64_t kMaxSize = std::int64_t{1} << 24;  // of one dimension
constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 30;
constexpr double kMaxParameters = 1e13;

/// Sizes that make no network together.
void check_shape(JsonMembers& config, const DecoderConfig& decoder) {
    if (config.failed()) {
        return;
    }
    if (decoder.num_attention_heads % decoder.num_key_value_heads != 0) {
        config.fail("num_key_value_heads", "is " + std::to_string(decoder.num_key_value_heads) +
                                               ", which does not divide num_attention_heads " +
                                               std::to_string(decoder.num_attention_heads));
    }
    if (decoder.head_dim % 2 != 0) {
        config.fail("head_dim", "is " + std::to_string(decoder.head_dim) + "; rotary positions need an even one");
    }
    // All factors are below 2^24 and 2^12, so that double arithmetic cannot overflow.
    const double heads_size = static_cast<double>(decoder.num_attention_heads) * static_cast<double>(decoder.head_dim);
    const auto hidden = static_cast<double>(decoder.hidden_size);
    const double layer = 4.0 * hidden * heads_size + 3.0 * hidden * static_cast<double>(decoder.intermediate_size);
    if (static_cast<double>(decoder.num_hidden_layers) * layer +
            2.0 * hidden * static_cast<double>(decoder.vocab_size) >
        kMaxParameters) {
        config.fail(config.place(),
                    "vocab_size, hidden_size, intermediate_size, head_dim and num_hidden_layers together make more "
                    "than 1e13 parameters");
    }
}

/// The scaling that an object beside or around rope_theta describes.
void read_rope_object(JsonMembers& rope, DecoderConfig& decoder) {
    rope.real_from("rope_theta", decoder.rope_theta, 0.0, false);
    const json::value* type = rope.find("rope_type");
    if (type == nullptr) {
        type = rope.find("type");  // before 4.43
    }
    if (type == nullptr || (type->is_string() && type->get_string() == "default")) {
        return;
    }
    if (!type->is_string() || type->get_string() != "llama3") {
        rope.fail("rope_type", "is " + JsonMembers::brief(*type) + "; only \"default\" and \"llama3\" are supported");
        return;
    }
    Llama3RopeScaling scaling;
    scaling.original_max_position_embeddings = decoder.max_position_embeddings;
    rope.require("factor").require("low_freq_factor").require("high_freq_factor");
    rope.real_from("factor", scaling.factor, 1.0, true);
    rope.real_from("low_freq_factor", scaling.low_freq_factor, 0.0, false);
    rope.real_from("high_freq_factor", scaling.high_freq_factor, scaling.low_freq_factor, false);
    rope.integer("original_max_position_embeddings", scaling.original_max_position_embeddings, std::int64_t{1},
                 kMaxPositions);
    decoder.rope_scaling = scaling;
}

json::object rope_object(const DecoderConfig& decoder) {
    json::object rope;
    if (decoder.rope_scaling) {
        rope["factor"] = decoder.rope_scaling->factor;
        rope["high_freq_factor"] = decoder.rope_scaling->high_freq_factor;
        rope["low_freq_factor"] = decoder.rope_scaling->low_freq_factor;
        rope["original_max_position_embeddings"] = decoder.rope_scaling->original_max_position_embeddings;
    }
    rope["rope_type"] = decoder.rope_scaling ? "llama3" : "default";
    return rope;
}

json::value id_value(const std::optional<std::int64_t>& id) {
    return id ? json::value(*id) : json::value(nullptr);
}

void require_whole_rotation(JsonMembers& config) {
    double partial = 1.0;
    config.real("partial_rotary_factor", partial);
    if (partial != 1.0) {
        config.fail("partial_rotary_factor", "other than 1 is not supported");
    }
}

}  // namespace

void read_decoder_fields(JsonMembers& config, DecoderConfig& decoder) {
    constexpr std::int64_t kMin = 1;
    if (config.find("quantization_config") != nullptr) {
        config.fail("quantization_config", "is present; quantized weights are not supported");
    }
    config.integer("vocab_size", decoder.vocab_size, kMin, kMaxSize);
    config.integer("hidden_size", decoder.hidden_size, kMin, kMaxSize);
    config.integer("intermediate_size", decoder.intermediate_size, kMin, kMaxSize);
    config.integer("num_hidden_layers", decoder.num_hidden_layers, kMin, kMaxLayers);
    config.integer("num_attention_heads", decoder.num_attention_heads, kMin, kMaxSize);
    config.integer("max_position_embeddings", decoder.max_position_embeddings, kMin, kMaxPositions);
    decoder.num_key_value_heads = decoder.num_attention_heads;
    config.integer("num_key_value_heads", decoder.num_key_value_heads, kMin, kMaxSize);
    if (config.find("head_dim") != nullptr) {
        config.integer("head_dim", decoder.head_dim, kMin, kMaxSize);
    } else if (!config.failed()) {
        if (decoder.hidden_size % decoder.num_attention_heads != 0) {
            config.fail("hidden_size", "is " + std::to_string(decoder.hidden_size) + ", which num_attention_heads " +
                                           std::to_string(decoder.num_attention_heads) +
                                           " does not divide, and head_dim is not given");
        }
        decoder.head_dim = decoder.hidden_size / decoder.num_attention_heads;
    }
    config.real_from("initializer_range", decoder.initializer_range, 0.0, true);
    config.boolean("tie_word_embeddings", decoder.tie_word_embeddings);
    read_id(config, "bos_token_id", decoder.bos_token_id);
    read_id(config, "pad_token_id", decoder.pad_token_id);
    read_ids(config, "eos_token_id", decoder.eos_token_ids);
    check_shape(config, decoder);
}

void write_decoder_fields(const DecoderConfig& decoder, json::object& config) {
    config["vocab_size"] = decoder.vocab_size;
    config["hidden_size"] = decoder.hidden_size;
    config["intermediate_size"] = decoder.intermediate_size;
    config["num_hidden_layers"] = decoder.num_hidden_layers;
    config["num_attention_heads"] = decoder.num_attention_heads;
    config["num_key_value_heads"] = decoder.num_key_value_heads;
    config["head_dim"] = decoder.head_dim;
    config["max_position_embeddings"] = decoder.max_position_embeddings;
    config["initializer_range"] = decoder.initializer_range;
    config["tie_word_embeddings"] = decoder.tie_word_embeddings;
    config["bos_token_id"] = id_value(decoder.bos_token_id);
    config["eos_token_id"] = eos_value(decoder);
    config["pad_token_id"] = id_value(decoder.pad_token_id);
}

void read_rope_fields(JsonMembers& config, DecoderConfig& decoder) {
    config.real_from("rope_theta", decoder.rope_theta, 0.0, false);
    require_whole_rotation(config);
    for (const std::string_view form : {"rope_parameters", "rope_scaling"}) {
        const json::object* object = config.object(form);
        if (object == nullptr || object->empty()) {
            continue;
        }
        JsonMembers rope(*object, config.place().at(form));
        require_whole_rotation(rope);
        read_rope_object(rope, decoder);
        if (rope.failed()) {
            config.fail(rope.error());
        }
        return;  // 5.x prefers rope_parameters, the only form that it writes
    }
}

void write_rope_fields(const DecoderConfig& decoder, json::object& config) {
    config["rope_theta"] = decoder.rope_theta;
    config["rope_scaling"] = decoder.rope_scaling ? json::value(rope_object(decoder)) : json::value(nullptr);
    json::object rope = rope_object(decoder);
    rope["rope_theta"] = decoder.rope_theta;
    config["rope_parameters"] = std::move(rope);
}

json::value eos_value(const DecoderConfig& decoder) {
    if (decoder.eos_token_ids.empty()) {
        return nullptr;
    }
    if (decoder.eos_token_ids.size() == 1) {
        return decoder.eos_token_ids.front();
    }
    return json::value_from(decoder.eos_token_ids);
}

}  // namespace distilld::models
