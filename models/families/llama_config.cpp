#include "models/families/llama_config.hpp"

#include <boost/json.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "base/files.hpp"

namespace distilld::models {
namespace {

namespace json = boost::json;

constexpr std::int64_t kLargestSize = std::int64_t{1} << 24;  // of one dimension
constexpr std::int64_t kMostLayers = 4096;
constexpr std::int64_t kMostPositions = std::int64_t{1} << 30;
constexpr double kMostParameters = 1e13;

Result<json::object> parse_object(std::string_view text, std::string_view where) {
    if (text.empty()) {
        return json::object();
    }
    boost::system::error_code code;
    auto value = json::parse(text, code);
    if (code) {
        return invalid_input(std::string(where) + ": not JSON (" + code.message() + ")");
    }
    if (!value.is_object()) {
        return invalid_input(std::string(where) + ": not a JSON object");
    }
    return std::move(value.get_object());
}

/// nullptr when absent or null, which transformers takes for absent.
const json::value* get(const json::object& object, std::string_view field) {
    const auto* value = object.if_contains(field);
    return value == nullptr || value->is_null() ? nullptr : value;
}

std::string brief(const json::value& value) {
    auto text = json::serialize(value);
    if (text.size() > 60) {
        text = text.substr(0, 57) + "...";
    }
    return text;
}

/// Reads typed fields of one object and remembers the first thing wrong.
class FieldReader {
  public:
    FieldReader(const json::object& object, std::string prefix) : object_(object), prefix_(std::move(prefix)) {}

    void integer(std::string_view field, std::int64_t& target, std::int64_t least, std::int64_t most) {
        const auto* value = get(object_, field);
        if (value == nullptr) {
            return;
        }
        const auto number = whole(*value);
        if (!number || *number < least || *number > most) {
            fail(field, "is " + brief(*value) + ", a whole number from " + std::to_string(least) + " to " +
                            std::to_string(most) + " is expected");
            return;
        }
        target = *number;
    }

    void real(std::string_view field, double& target, double least, bool least_allowed) {
        const auto* value = get(object_, field);
        if (value == nullptr) {
            return;
        }
        const double number = value->is_number() ? value->to_number<double>() : std::nan("");
        if (!std::isfinite(number) || number < least || (number == least && !least_allowed)) {
            fail(field, "is " + brief(*value) + ", a number " + (least_allowed ? "of at least " : "above ") +
                            brief(least) + " is expected");
            return;
        }
        target = number;
    }

    void boolean(std::string_view field, bool& target) {
        const auto* value = get(object_, field);
        if (value == nullptr) {
            return;
        }
        if (!value->is_bool()) {
            fail(field, "is " + brief(*value) + ", true or false is expected");
            return;
        }
        target = value->get_bool();
    }

    /// A field whose only supported text is `expected`; absent is fine.
    void only(std::string_view field, std::string_view expected) {
        const auto* value = get(object_, field);
        if (value != nullptr && (!value->is_string() || std::string_view(value->get_string()) != expected)) {
            fail(field, "is " + brief(*value) + "; only \"" + std::string(expected) + "\" is supported");
        }
    }

    /// An id or, with `many`, a list of ids; null gives none, absence leaves the default.
    void ids(std::string_view field, std::vector<std::int64_t>& target, bool many) {
        const auto* value = object_.if_contains(field);
        if (value == nullptr) {
            return;
        }
        target.clear();
        if (value->is_null()) {
            return;
        }
        json::array single{*value};
        for (const auto& item : many && value->is_array() ? value->get_array() : single) {
            const auto id = whole(item);
            // Some published configurations say -1 for "none".
            if (!id || *id < -1 || *id > kLargestSize) {
                fail(field, "is " + brief(*value) + ", a token id is expected");
                return;
            }
            if (*id >= 0) {
                target.push_back(*id);
            }
        }
    }

    void id(std::string_view field, std::optional<std::int64_t>& target) {
        std::vector<std::int64_t> list;
        if (target) {
            list.push_back(*target);
        }
        ids(field, list, false);
        target = list.empty() ? std::nullopt : std::optional(list.front());
    }

    void fail(std::string_view field, const std::string& what) {
        if (!error_) {
            error_ = invalid_input(prefix_ + std::string(field) + " " + what);
        }
    }

    [[nodiscard]] const std::optional<Error>& error() const { return error_; }

  private:
    static std::optional<std::int64_t> whole(const json::value& value) {
        if (value.is_int64()) {
            return value.get_int64();
        }
        if (value.is_double()) {
            const double number = value.get_double();
            if (std::abs(number) < 9e15 && number == std::floor(number)) {
                return static_cast<std::int64_t>(number);
            }
        }
        return std::nullopt;
    }

    const json::object& object_;
    std::string prefix_;
    std::optional<Error> error_;
};

/// rope_parameters (5.x) or rope_scaling (4.x): the object beside rope_theta.
std::optional<Error> read_rope(const json::object& object, std::string_view where, LlamaConfig& config) {
    const std::string prefix = std::string(where) + ": ";
    FieldReader top(object, prefix);
    top.real("rope_theta", config.rope_theta, 0.0, false);
    double partial = 1.0;
    top.real("partial_rotary_factor", partial, 0.0, false);
    if (top.error()) {
        return top.error();
    }
    for (const std::string_view form : {"rope_parameters", "rope_scaling"}) {
        const auto* value = get(object, form);
        if (value == nullptr || (value->is_object() && value->get_object().empty())) {
            continue;
        }
        if (!value->is_object()) {
            return invalid_input(prefix + std::string(form) + " is " + brief(*value) + ", an object is expected");
        }
        const auto& rope = value->get_object();
        FieldReader reader(rope, prefix + std::string(form) + ".");
        reader.real("rope_theta", config.rope_theta, 0.0, false);
        reader.real("partial_rotary_factor", partial, 0.0, false);
        const auto* type = get(rope, "rope_type");
        if (type == nullptr) {
            type = get(rope, "type");  // before 4.43
        }
        if (type != nullptr && !type->is_string()) {
            reader.fail("rope_type", "is " + brief(*type) + ", a text is expected");
        } else if (type != nullptr && type->get_string() == "llama3") {
            Llama3RopeScaling scaling;
            scaling.original_max_position_embeddings = config.max_position_embeddings;
            for (const std::string_view field : {"factor", "low_freq_factor", "high_freq_factor"}) {
                if (get(rope, field) == nullptr) {
                    reader.fail(field, "is missing; rope_type llama3 needs it");
                }
            }
            reader.real("factor", scaling.factor, 1.0, true);
            reader.real("low_freq_factor", scaling.low_freq_factor, 0.0, false);
            reader.real("high_freq_factor", scaling.high_freq_factor, scaling.low_freq_factor, false);
            reader.integer("original_max_position_embeddings", scaling.original_max_position_embeddings, 1,
                           kMostPositions);
            config.rope_scaling = scaling;
        } else if (type != nullptr && type->get_string() != "default") {
            reader.fail("rope_type", "is " + brief(*type) + "; only \"default\" and \"llama3\" are supported");
        }
        if (reader.error()) {
            return reader.error();
        }
        break;  // 5.x prefers rope_parameters, the only form that it writes
    }
    if (partial != 1.0) {
        return invalid_input(prefix + "partial_rotary_factor other than 1 is not supported");
    }
    return std::nullopt;
}

std::optional<Error> check_shape(const LlamaConfig& config, std::string_view where) {
    const std::string prefix = std::string(where) + ": ";
    if (config.num_attention_heads % config.num_key_value_heads != 0) {
        return invalid_input(prefix + "num_key_value_heads is " + std::to_string(config.num_key_value_heads) +
                             ", which does not divide num_attention_heads " +
                             std::to_string(config.num_attention_heads));
    }
    if (config.head_dim % 2 != 0) {
        return invalid_input(prefix + "head_dim is " + std::to_string(config.head_dim) +
                             "; rotary positions need an even one");
    }
    // All factors are below 2^24 and 2^12, so that double arithmetic cannot overflow.
    const double heads_size = static_cast<double>(config.num_attention_heads) * static_cast<double>(config.head_dim);
    const auto hidden = static_cast<double>(config.hidden_size);
    const double layer = 4.0 * hidden * heads_size + 3.0 * hidden * static_cast<double>(config.intermediate_size);
    if (static_cast<double>(config.num_hidden_layers) * layer + 2.0 * hidden * static_cast<double>(config.vocab_size) >
        kMostParameters) {
        return invalid_input(prefix +
                             "vocab_size, hidden_size, intermediate_size, head_dim and num_hidden_layers "
                             "together make more than 1e13 parameters");
    }
    return std::nullopt;
}

json::object rope_object(const LlamaConfig& config) {
    json::object rope;
    if (config.rope_scaling) {
        rope["factor"] = config.rope_scaling->factor;
        rope["high_freq_factor"] = config.rope_scaling->high_freq_factor;
        rope["low_freq_factor"] = config.rope_scaling->low_freq_factor;
        rope["original_max_position_embeddings"] = config.rope_scaling->original_max_position_embeddings;
    }
    rope["rope_type"] = config.rope_scaling ? "llama3" : "default";
    return rope;
}

json::value eos_value(const LlamaConfig& config) {
    if (config.eos_token_ids.empty()) {
        return nullptr;
    }
    if (config.eos_token_ids.size() == 1) {
        return config.eos_token_ids.front();
    }
    return json::value_from(config.eos_token_ids);
}

json::value id_value(const std::optional<std::int64_t>& id) {
    return id ? json::value(*id) : json::value(nullptr);
}

/// A double as people write it: 1e-05 rather than Boost.JSON's 1E-5.
std::string number_text(double number) {
    char text[40];
    for (int digits = 1; digits <= 17; ++digits) {
        std::snprintf(text, sizeof text, "%.*g", digits, number);
        if (std::strtod(text, nullptr) == number) {
            break;
        }
    }
    std::string result = text;
    if (result.find_first_of(".e") == std::string::npos) {
        result += ".0";
    }
    return result;
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
            out += inner + json::serialize(json::value(key)) + ": ";
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
        out += number_text(value.get_double());
    } else {
        out += json::serialize(value);
    }
}

std::string pretty(const json::object& object) {
    std::string out;
    write_pretty(object, out, 0);
    out += "\n";
    return out;
}

}  // namespace

Result<LlamaConfig> parse_llama_config(std::string_view text, std::string_view where) {
    if (text.empty()) {
        return invalid_input(std::string(where) + ": is empty, a JSON object is expected");
    }
    auto object = parse_object(text, where);
    if (!object) {
        return object.error();
    }
    LlamaConfig config;
    FieldReader reader(*object, std::string(where) + ": ");
    reader.only("model_type", "llama");
    reader.only("hidden_act", "silu");
    if (get(*object, "quantization_config") != nullptr) {
        reader.fail("quantization_config", "is present; quantized weights are not supported");
    }
    reader.integer("vocab_size", config.vocab_size, 1, kLargestSize);
    reader.integer("hidden_size", config.hidden_size, 1, kLargestSize);
    reader.integer("intermediate_size", config.intermediate_size, 1, kLargestSize);
    reader.integer("num_hidden_layers", config.num_hidden_layers, 1, kMostLayers);
    reader.integer("num_attention_heads", config.num_attention_heads, 1, kLargestSize);
    reader.integer("max_position_embeddings", config.max_position_embeddings, 1, kMostPositions);
    config.num_key_value_heads = config.num_attention_heads;
    reader.integer("num_key_value_heads", config.num_key_value_heads, 1, kLargestSize);
    if (get(*object, "head_dim") != nullptr) {
        reader.integer("head_dim", config.head_dim, 1, kLargestSize);
    } else if (!reader.error()) {
        if (config.hidden_size % config.num_attention_heads != 0) {
            reader.fail("hidden_size", "is " + std::to_string(config.hidden_size) + ", which num_attention_heads " +
                                           std::to_string(config.num_attention_heads) +
                                           " does not divide, and head_dim is not given");
        }
        config.head_dim = config.hidden_size / config.num_attention_heads;
    }
    reader.real("rms_norm_eps", config.rms_norm_eps, 0.0, true);
    reader.real("initializer_range", config.initializer_range, 0.0, true);
    reader.boolean("tie_word_embeddings", config.tie_word_embeddings);
    reader.boolean("attention_bias", config.attention_bias);
    reader.boolean("mlp_bias", config.mlp_bias);
    reader.id("bos_token_id", config.bos_token_id);
    reader.id("pad_token_id", config.pad_token_id);
    reader.ids("eos_token_id", config.eos_token_ids, true);
    if (reader.error()) {
        return *reader.error();
    }
    if (auto error = read_rope(*object, where, config)) {
        return *error;
    }
    if (auto error = check_shape(config, where)) {
        return *error;
    }
    return config;
}

Result<LlamaConfig> read_llama_config(const std::filesystem::path& folder) {
    const auto path = folder / "config.json";
    auto text = read_text_file(path, kConfigSizeLimit);
    if (!text) {
        return text.error();
    }
    return parse_llama_config(*text, path.string());
}

Result<std::string> merge_config_json(std::string_view base_json, std::string_view override_json,
                                      std::string_view where) {
    auto base = parse_object(base_json, where);
    if (!base) {
        return base.error();
    }
    auto over = parse_object(override_json, where);
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
        // The theta inside rope_parameters would win over the one beside it.
        auto* rope = base->if_contains("rope_parameters");
        if (rope != nullptr && rope->is_object()) {
            rope->get_object()["rope_theta"] = *theta;
        }
    }
    for (auto& [key, value] : *over) {
        (*base)[key] = value;
    }
    return json::serialize(*base);
}

Result<LlamaConfig> merge_llama_config(std::string_view base_json, std::string_view override_json,
                                       std::string_view where) {
    auto merged = merge_config_json(base_json, override_json, where);
    if (!merged) {
        return merged.error();
    }
    return parse_llama_config(*merged, where);
}

std::string to_config_json(const LlamaConfig& config, const std::string& original_json, std::string_view torch_dtype) {
    auto original = parse_object(original_json, "config");
    json::object object = original ? std::move(*original) : json::object();
    object["architectures"] = json::array{"LlamaForCausalLM"};
    object["model_type"] = "llama";
    object["hidden_act"] = "silu";
    object["vocab_size"] = config.vocab_size;
    object["hidden_size"] = config.hidden_size;
    object["intermediate_size"] = config.intermediate_size;
    object["num_hidden_layers"] = config.num_hidden_layers;
    object["num_attention_heads"] = config.num_attention_heads;
    object["num_key_value_heads"] = config.num_key_value_heads;
    object["head_dim"] = config.head_dim;
    object["max_position_embeddings"] = config.max_position_embeddings;
    object["rms_norm_eps"] = config.rms_norm_eps;
    object["initializer_range"] = config.initializer_range;
    object["tie_word_embeddings"] = config.tie_word_embeddings;
    object["attention_bias"] = config.attention_bias;
    object["mlp_bias"] = config.mlp_bias;
    object["bos_token_id"] = id_value(config.bos_token_id);
    object["eos_token_id"] = eos_value(config);
    object["pad_token_id"] = id_value(config.pad_token_id);
    // 4.x reads these two …
    object["rope_theta"] = config.rope_theta;
    object["rope_scaling"] = config.rope_scaling ? json::value(rope_object(config)) : json::value(nullptr);
    // … and 5.x this one.
    auto rope = rope_object(config);
    rope["rope_theta"] = config.rope_theta;
    object["rope_parameters"] = std::move(rope);
    object["torch_dtype"] = torch_dtype;
    object["dtype"] = torch_dtype;
    if (!object.contains("use_cache")) {
        object["use_cache"] = true;
    }
    return pretty(object);
}

std::string to_generation_config_json(const LlamaConfig& config) {
    json::object object;
    object["_from_model_config"] = true;
    if (config.bos_token_id) {
        object["bos_token_id"] = *config.bos_token_id;
    }
    if (!config.eos_token_ids.empty()) {
        object["eos_token_id"] = eos_value(config);
    }
    if (config.pad_token_id) {
        object["pad_token_id"] = *config.pad_token_id;
    }
    return pretty(object);
}

std::uint64_t parameter_count(const LlamaConfig& config) {
    const auto hidden = static_cast<std::uint64_t>(config.hidden_size);
    const auto inner = static_cast<std::uint64_t>(config.intermediate_size);
    const auto queries = static_cast<std::uint64_t>(config.num_attention_heads * config.head_dim);
    const auto keys = static_cast<std::uint64_t>(config.num_key_value_heads * config.head_dim);
    std::uint64_t layer = 2 * hidden + 2 * hidden * queries + 2 * hidden * keys + 3 * hidden * inner;
    if (config.attention_bias) {
        layer += queries + 2 * keys + hidden;
    }
    if (config.mlp_bias) {
        layer += 2 * inner + hidden;
    }
    const auto table = static_cast<std::uint64_t>(config.vocab_size) * hidden;
    return (config.tie_word_embeddings ? 1 : 2) * table + static_cast<std::uint64_t>(config.num_hidden_layers) * layer +
           hidden;
}

}  // namespace distilld::models
