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

constexpr double kMaxParameters = 1e13;

json::value id_value(const std::optional<std::int64_t>& id) {
    return id ? json::value(*id) : json::value(nullptr);
}

}  // namespace

void check_shape(JsonMembers& config, const DecoderConfig& decoder) {
    if (config.failed()) {
        return;
    }
    if (decoder.num_attention_heads % decoder.num_key_value_heads != 0) {
        config.fail("num_key_value_heads", "is " + std::to_string(decoder.num_key_value_heads) +
                                               ", which does not divide num_attention_heads " +
                                               std::to_string(decoder.num_attention_heads));
    }
    if (decoder.positions == PositionKind::rotary && decoder.head_dim % 2 != 0) {
        config.fail("head_dim", "is " + std::to_string(decoder.head_dim) + "; rotary positions need an even one");
    }
    // All factors are below 2^30, so that double arithmetic cannot overflow.
    const double heads_size = static_cast<double>(decoder.num_attention_heads) * static_cast<double>(decoder.head_dim);
    const auto hidden = static_cast<double>(decoder.hidden_size);
    const double layer = 4.0 * hidden * heads_size + 3.0 * hidden * static_cast<double>(decoder.intermediate_size);
    const double positions =
        decoder.positions == PositionKind::learned ? hidden * static_cast<double>(decoder.max_position_embeddings) : 0;
    if (static_cast<double>(decoder.num_hidden_layers) * layer +
            2.0 * hidden * static_cast<double>(decoder.vocab_size) + positions >
        kMaxParameters) {
        config.fail(config.place(),
                    "vocab_size, hidden_size, intermediate_size, head_dim and num_hidden_layers together make more "
                    "than 1e13 parameters");
    }
}

void read_common_fields(JsonMembers& config, DecoderConfig& decoder) {
    if (config.find("quantization_config") != nullptr) {
        config.fail("quantization_config", "is present; quantized weights are not supported");
    }
    config.integer("vocab_size", decoder.vocab_size, std::int64_t{1}, kMaxSize);
    config.real_from("initializer_range", decoder.initializer_range, 0.0, true);
    config.boolean("tie_word_embeddings", decoder.tie_word_embeddings);
    read_id(config, "bos_token_id", decoder.bos_token_id);
    read_id(config, "pad_token_id", decoder.pad_token_id);
    read_ids(config, "eos_token_id", decoder.eos_token_ids);
}

void read_decoder_fields(JsonMembers& config, DecoderConfig& decoder, const AbsentSizes& absent) {
    constexpr std::int64_t kMin = 1;
    read_common_fields(config, decoder);
    config.integer("hidden_size", decoder.hidden_size, kMin, kMaxSize);
    config.integer("intermediate_size", decoder.intermediate_size, kMin, kMaxSize);
    config.integer("num_hidden_layers", decoder.num_hidden_layers, kMin, kMaxLayers);
    config.integer("num_attention_heads", decoder.num_attention_heads, kMin, kMaxSize);
    config.integer("max_position_embeddings", decoder.max_position_embeddings, kMin, kMaxPositions);
    const bool says_heads = config.members().contains("num_key_value_heads");  // null means num_attention_heads too
    decoder.num_key_value_heads =
        says_heads ? decoder.num_attention_heads : absent.num_key_value_heads.value_or(decoder.num_attention_heads);
    config.integer("num_key_value_heads", decoder.num_key_value_heads, kMin, kMaxSize);
    if (config.find("head_dim") != nullptr) {
        config.integer("head_dim", decoder.head_dim, kMin, kMaxSize);
    } else if (absent.head_dim) {
        decoder.head_dim = *absent.head_dim;
    } else if (!config.failed()) {
        if (decoder.hidden_size % decoder.num_attention_heads != 0) {
            config.fail("hidden_size", "is " + std::to_string(decoder.hidden_size) + ", which num_attention_heads " +
                                           std::to_string(decoder.num_attention_heads) +
                                           " does not divide, and head_dim is not given");
        }
        decoder.head_dim = decoder.hidden_size / decoder.num_attention_heads;
    }
    check_shape(config, decoder);
}

void write_common_fields(const DecoderConfig& decoder, json::object& config) {
    config["vocab_size"] = decoder.vocab_size;
    config["initializer_range"] = decoder.initializer_range;
    config["tie_word_embeddings"] = decoder.tie_word_embeddings;
    config["bos_token_id"] = id_value(decoder.bos_token_id);
    config["eos_token_id"] = eos_value(decoder);
    config["pad_token_id"] = id_value(decoder.pad_token_id);
}

void write_decoder_fields(const DecoderConfig& decoder, json::object& config) {
    write_common_fields(decoder, config);
    config["hidden_size"] = decoder.hidden_size;
    config["intermediate_size"] = decoder.intermediate_size;
    config["num_hidden_layers"] = decoder.num_hidden_layers;
    config["num_attention_heads"] = decoder.num_attention_heads;
    config["num_key_value_heads"] = decoder.num_key_value_heads;
    config["head_dim"] = decoder.head_dim;
    config["max_position_embeddings"] = decoder.max_position_embeddings;
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
