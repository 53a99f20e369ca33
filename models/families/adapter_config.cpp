#include "models/families/adapter_config.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <string_view>

#include "base/files/files.hpp"
#include "base/json_members.hpp"
#include "models/families/config_fields.hpp"
#include "models/families/config_json.hpp"
#include "models/families/model_family.hpp"

namespace distilld::models {

namespace fs = std::filesystem;
namespace json = boost::json;

namespace {

/// Fields that are read here, or that do not affect the computation of a saved adapter.
constexpr std::string_view kKnown[] = {
    "auto_mapping",
    "base_model_name_or_path",
    "bias",
    "fan_in_fan_out",  // follows from the base; PEFT corrects it too
    "inference_mode",
    "init_lora_weights",
    "lora_alpha",
    "lora_dropout",
    "megatron_core",  // only relevant with megatron_config
    "peft_type",
    "peft_version",
    "qalora_group_size",  // only relevant with use_qalora
    "r",
    "revision",
    "target_modules",
    "task_type",
};

/// Whether the value is null, false, 0, "" or empty: PEFT's forms of "not used".
bool is_unused(const json::value& value) {
    if (const json::array* array = value.if_array()) {
        return array->empty();
    }
    if (const json::object* object = value.if_object()) {
        return object->empty();
    }
    return value.is_null() || value == json::value(false) || value == json::value(0) || value == json::value("");
}

void review_options(JsonMembers& config) {
    for (const auto& [name, value] : config.members()) {
        if (std::ranges::find(kKnown, std::string_view(name)) == std::end(kKnown) && !is_unused(value)) {
            config.fail(name, "is " + JsonMembers::brief(value) + ", which is not supported");
        }
    }
    // Other values change the base's weights when an adapter is created.
    const json::value* init = config.find("init_lora_weights");
    if (init != nullptr && !init->is_bool() && *init != json::value("gaussian")) {
        config.fail("init_lora_weights", "is " + JsonMembers::brief(*init) + ", which is not supported");
    }
}

void read_targets(JsonMembers& config, std::vector<std::string>& targets) {
    const json::value* value = config.find("target_modules");
    if (value != nullptr && *value == json::value("all-linear")) {
        return;
    }
    if (value == nullptr || !value->is_array() || value->get_array().empty()) {
        config.fail("target_modules", "is " + (value == nullptr ? "missing" : JsonMembers::brief(*value)) +
                                          ", a list of names is expected");
        return;
    }
    for (const json::value& name : value->get_array()) {
        if (!name.is_string()) {
            config.fail("target_modules", "names " + JsonMembers::brief(name) + ", a text is expected");
            return;
        }
        targets.emplace_back(name.get_string());
    }
}

}  // namespace

bool is_adapter_folder(const fs::path& folder) {
    std::error_code ignored;
    return fs::is_regular_file(folder / kAdapterConfigFile, ignored);
}

Result<AdapterConfig> read_adapter_config(const fs::path& folder) {
    const fs::path path = folder / kAdapterConfigFile;
    const Result<std::string> text = read_text_file(path, kMaxConfigBytes);
    if (!text) {
        return text.error();
    }
    const JsonPlace place{path.string(), ""};
    const Result<json::object> object = parse_config_object(*text, place);
    if (!object) {
        return object.error();
    }
    JsonMembers fields(*object, place);
    for (const char* name : {"peft_type", "base_model_name_or_path", "r", "lora_alpha"}) {
        fields.require(name);
    }
    require_text(fields, "peft_type", "LORA");
    require_text(fields, "bias", "none");
    AdapterConfig config;
    constexpr std::int64_t kMaxRank = 65536;
    fields.text("base_model_name_or_path", config.base);
    fields.integer("r", config.r, std::int64_t{1}, kMaxRank);
    fields.real_from("lora_alpha", config.alpha, 0.0, false);
    fields.real_from("lora_dropout", config.dropout, 0.0, true);
    read_targets(fields, config.target_modules);
    review_options(fields);
    return fields.failed() ? Result<AdapterConfig>(fields.error()) : Result<AdapterConfig>(std::move(config));
}

std::string to_adapter_config_json(const AdapterConfig& config) {
    return pretty_json(json::object{
        {"peft_type", "LORA"},
        {"task_type", "CAUSAL_LM"},
        {"base_model_name_or_path", config.base},
        {"r", config.r},
        {"lora_alpha", config.alpha},
        {"lora_dropout", config.dropout},
        {"target_modules", json::value_from(config.target_modules)},
        {"bias", "none"},
        {"fan_in_fan_out", config.fan_in_fan_out},
        {"init_lora_weights", true},
        {"inference_mode", true},
        {"modules_to_save", nullptr},
        {"use_dora", false},
        {"use_rslora", false},
        {"rank_pattern", json::object()},
        {"alpha_pattern", json::object()},
        {"revision", nullptr},
    });
}

Result<fs::path> base_of_adapter(const fs::path& folder, const AdapterConfig& config) {
    const fs::path named(config.base);
    for (const fs::path& candidate : {named, folder / named}) {
        std::error_code ignored;
        if (!named.empty() && fs::is_regular_file(candidate / "config.json", ignored)) {
            return fs::absolute(candidate).lexically_normal();
        }
    }
    return invalid_input(
        (folder / kAdapterConfigFile).string() + ": /base_model_name_or_path: is \"" + config.base +
        "\", which is not a folder with a config.json on this machine: put the base model's folder there");
}

fs::path folder_with(const fs::path& folder, const std::string& file) {
    std::error_code ignored;
    if (fs::exists(folder / file, ignored) || !is_adapter_folder(folder)) {
        return folder;
    }
    const Result<AdapterConfig> config = read_adapter_config(folder);
    const Result<fs::path> base = config ? base_of_adapter(folder, *config) : config.error();
    return base ? *base : folder;
}

}  // namespace distilld::models
