#include "models/families/rope_fields.hpp"

#include <boost/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "models/families/decoder_fields.hpp"

namespace distilld::models {

namespace json = boost::json;

namespace {

/// Reader of one rope_type.
struct RopeType {
    std::string_view name;
    void (*read)(JsonMembers& rope, DecoderConfig& decoder);
};

void read_optional(JsonMembers& rope, std::string_view name, std::optional<double>& target) {
    if (rope.find(name) != nullptr) {
        double value = 0;
        rope.real_from(name, value, 0.0, true);
        target = value;
    }
}

void read_linear(JsonMembers& rope, DecoderConfig& decoder) {
    LinearRopeScaling scaling;
    rope.require("factor");
    rope.real_from("factor", scaling.factor, 1.0, true);
    decoder.rope_scaling = scaling;
}

void read_llama3(JsonMembers& rope, DecoderConfig& decoder) {
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

void read_yarn(JsonMembers& rope, DecoderConfig& decoder) {
    YarnRopeScaling scaling;
    scaling.original_max_position_embeddings = decoder.max_position_embeddings;
    rope.require("factor");
    rope.real_from("factor", scaling.factor, 1.0, true);
    rope.integer("original_max_position_embeddings", scaling.original_max_position_embeddings, std::int64_t{1},
                 kMaxPositions);
    read_optional(rope, "attention_factor", scaling.attention_factor);
    read_optional(rope, "mscale", scaling.mscale);
    read_optional(rope, "mscale_all_dim", scaling.mscale_all_dim);
    read_optional(rope, "beta_fast", scaling.beta_fast);
    read_optional(rope, "beta_slow", scaling.beta_slow);
    if (rope.find("truncate") != nullptr) {
        rope.boolean("truncate", scaling.truncate.emplace());
    }
    decoder.rope_scaling = scaling;
}

constexpr RopeType kRopeTypes[] = {
    {"default", [](JsonMembers&, DecoderConfig&) {}},
    {"linear", read_linear},
    {"llama3", read_llama3},
    {"yarn", read_yarn},
};

/// Reads the scaling from an object that may also contain rope_theta.
void read_rope_object(JsonMembers& rope, DecoderConfig& decoder) {
    rope.real_from("rope_theta", decoder.rope_theta, 0.0, false);
    const json::value* type = rope.find("rope_type");
    if (type == nullptr) {
        type = rope.find("type");  // before 4.43
    }
    if (type == nullptr) {
        return;
    }
    for (const RopeType& row : kRopeTypes) {
        if (type->is_string() && std::string_view(type->get_string()) == row.name) {
            row.read(rope, decoder);
            return;
        }
    }
    rope.fail("rope_type", "is " + JsonMembers::brief(*type) +
                               "; only \"default\", \"linear\", \"llama3\" and \"yarn\" are supported");
}

void put(json::object& rope, std::string_view name, const std::optional<double>& value) {
    if (value) {
        rope[name] = *value;
    }
}

json::object written(const LinearRopeScaling& scaling) {
    return {{"rope_type", "linear"}, {"factor", scaling.factor}};
}

json::object written(const Llama3RopeScaling& scaling) {
    return {{"rope_type", "llama3"},
            {"factor", scaling.factor},
            {"high_freq_factor", scaling.high_freq_factor},
            {"low_freq_factor", scaling.low_freq_factor},
            {"original_max_position_embeddings", scaling.original_max_position_embeddings}};
}

json::object written(const YarnRopeScaling& scaling) {
    json::object rope{{"rope_type", "yarn"},
                      {"factor", scaling.factor},
                      {"original_max_position_embeddings", scaling.original_max_position_embeddings}};
    put(rope, "beta_fast", scaling.beta_fast);
    put(rope, "beta_slow", scaling.beta_slow);
    put(rope, "attention_factor", scaling.attention_factor);
    put(rope, "mscale", scaling.mscale);
    put(rope, "mscale_all_dim", scaling.mscale_all_dim);
    if (scaling.truncate) {
        rope["truncate"] = *scaling.truncate;
    }
    return rope;
}

json::object rope_object(const DecoderConfig& decoder) {
    if (!decoder.rope_scaling) {
        return {{"rope_type", "default"}};
    }
    return std::visit([](const auto& scaling) { return written(scaling); }, *decoder.rope_scaling);
}

void require_whole_rotation(JsonMembers& config) {
    double partial = 1.0;
    config.real("partial_rotary_factor", partial);
    if (partial != 1.0) {
        config.fail("partial_rotary_factor", "other than 1 is not supported");
    }
}

}  // namespace

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
        return;  // transformers 5.x prefers rope_parameters, and writes only that
    }
}

void write_rope_fields(const DecoderConfig& decoder, json::object& config) {
    config["rope_theta"] = decoder.rope_theta;
    config["rope_scaling"] = decoder.rope_scaling ? json::value(rope_object(decoder)) : json::value(nullptr);
    json::object rope = rope_object(decoder);
    rope["rope_theta"] = decoder.rope_theta;
    config["rope_parameters"] = std::move(rope);
}

}  // namespace distilld::models
