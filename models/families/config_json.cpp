#include "models/families/config_json.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "base/json_text.hpp"
#include "models/families/config_fields.hpp"
#include "models/families/decoder_fields.hpp"

namespace distilld::models {
namespace {

namespace json = boost::json;

/// Writes whole numbers as doubles too, so that readers see a double: 500000.0.
std::string double_text(double number) {
    std::string text = number_text(number);
    if (text.find_first_of(".e") == std::string::npos) {
        text += ".0";
    }
    return text;
}

/// Two-space indented JSON with sorted keys, as transformers writes it.
void write_pretty(const json::value& value, std::string& out, std::size_t depth) {
    const std::string inner((depth + 1) * 2, ' ');
    const std::string outer(depth * 2, ' ');
    if (const auto* object = value.if_object(); object != nullptr && !object->empty()) {
        std::map<std::string_view, const json::value*> sorted;
        for (const auto& [key, item] : *object) {
            sorted.emplace(key, &item);
        }
        out += "{\n";
        bool first = true;
        for (const auto& [key, item] : sorted) {
            out += first ? "" : ",\n";
            first = false;
            out += inner + to_text(json::value(key)) + ": ";
            write_pretty(*item, out, depth + 1);
        }
        out += "\n" + outer + "}";
    } else if (const auto* array = value.if_array(); array != nullptr && !array->empty()) {
        out += "[\n";
        bool first = true;
        for (const auto& item : *array) {
            out += first ? "" : ",\n";
            first = false;
            out += inner;
            write_pretty(item, out, depth + 1);
        }
        out += "\n" + outer + "]";
    } else if (value.is_double() && std::isfinite(value.get_double())) {
        out += double_text(value.get_double());
    } else {
        out += to_text(value);
    }
}

/// Writes the ids that are set.
void write_special_tokens(const DecoderConfig& decoder, json::object& generation) {
    if (decoder.bos_token_id) {
        generation["bos_token_id"] = *decoder.bos_token_id;
    }
    if (!decoder.eos_token_ids.empty()) {
        generation["eos_token_id"] = eos_value(decoder);
    }
    if (decoder.pad_token_id) {
        generation["pad_token_id"] = *decoder.pad_token_id;
    }
}

}  // namespace

std::string pretty_json(const json::object& object) {
    std::string out;
    write_pretty(object, out, 0);
    out += "\n";
    return out;
}

Result<std::string> merge_config_json(std::string_view base_json, const JsonPlace& base_place,
                                      std::string_view override_json, const JsonPlace& override_place) {
    auto base = parse_config_object(base_json, base_place);
    if (!base) {
        return base.error();
    }
    auto over = parse_config_object(override_json, override_place);
    if (!over) {
        return over.error();
    }
    const auto changes = [&](std::string_view field) {
        const auto* now = over->if_contains(field);
        const auto* before = base->if_contains(field);
        return now != nullptr && (before == nullptr || *before != *now);
    };
    if (changes("num_attention_heads") && !over->contains("num_key_value_heads")) {
        base->erase("num_key_value_heads");
    }
    if ((changes("num_attention_heads") || changes("hidden_size")) && !over->contains("head_dim")) {
        base->erase("head_dim");
    }
    if (over->contains("rope_parameters") || over->contains("rope_scaling")) {
        base->erase("rope_parameters");
        base->erase("rope_scaling");
    } else if (const auto* theta = over->if_contains("rope_theta")) {
        // Otherwise the theta in rope_parameters would override the one outside it.
        auto* rope = base->if_contains("rope_parameters");
        if (rope != nullptr && rope->is_object()) {
            rope->get_object()["rope_theta"] = *theta;
        }
    }
    for (auto& [key, value] : *over) {
        (*base)[key] = value;
    }
    return to_text(*base);
}

void set_special_tokens(ModelConfig& config, const SpecialTokens& special) {
    config.decoder.bos_token_id = special.bos;
    config.decoder.eos_token_ids = special.eos;
    config.decoder.pad_token_id = special.pad;
    auto generation = parse_config_object(config.source_generation_json, {});
    if (config.source_generation_json.empty() || !generation) {
        return;
    }
    for (const char* name : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
        generation->erase(name);
    }
    write_special_tokens(config.decoder, *generation);
    config.source_generation_json = pretty_json(*generation);
}

std::string to_config_json(const ModelConfig& config, std::string_view dtype) {
    auto source = parse_config_object(config.source_json, {});
    json::object object = source ? std::move(*source) : json::object();
    config.family->write(config.decoder, object);
    object["model_type"] = config.family->model_type;
    object["torch_dtype"] = dtype;
    object["dtype"] = dtype;
    if (!object.contains("use_cache")) {
        object["use_cache"] = true;
    }
    return pretty_json(object);
}

std::string to_generation_config_json(const ModelConfig& config) {
    if (!config.source_generation_json.empty()) {
        return config.source_generation_json;
    }
    json::object object;
    object["_from_model_config"] = true;
    write_special_tokens(config.decoder, object);
    return pretty_json(object);
}

std::vector<std::int32_t> end_token_ids(const ModelConfig& config) {
    std::set<std::int32_t> ids;
    const auto add = [&ids](const json::value& id) {
        if (id.is_int64() && std::in_range<std::int32_t>(id.get_int64())) {
            ids.insert(static_cast<std::int32_t>(id.get_int64()));
        }
    };
    for (const std::int64_t id : config.decoder.eos_token_ids) {
        add(id);
    }
    if (!config.source_generation_json.empty()) {
        if (const auto generation = parse_config_object(config.source_generation_json, {})) {
            if (const auto* found = generation->if_contains("eos_token_id")) {
                add(*found);
                if (const auto* list = found->if_array()) {
                    std::ranges::for_each(*list, add);
                }
            }
        }
    }
    return {ids.begin(), ids.end()};
}

}  // namespace distilld::models
