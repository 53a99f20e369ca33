#include "models/families/model_family.hpp"

#include <algorithm>
#include <boost/json.hpp>

#include "base/files/files.hpp"
#include "models/families/config_fields.hpp"
#include "models/families/field_review.hpp"
#include "models/families/gpt2.hpp"
#include "models/families/llama.hpp"

namespace distilld::models {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

/// A family is one row here and the file that the row names.
constexpr ModelFamily kFamilies[] = {
    {"llama", parse_llama, write_llama, kLlamaNames, kLlamaFields},
    {"gpt2", parse_gpt2, write_gpt2, kGpt2Names, kGpt2Fields},
    {"mistral", parse_mistral, write_mistral, kLlamaNames, kMistralFields},
    {"qwen2", parse_qwen2, write_qwen2, kLlamaNames, kQwen2Fields},
    {"qwen3", parse_qwen3, write_qwen3, kQwen3Names, kQwen3Fields},
};

std::string known_types(std::span<const ModelFamily> families) {
    std::string text;
    for (const ModelFamily& family : families) {
        text += (text.empty() ? "\"" : ", \"") + std::string(family.model_type) + "\"";
    }
    return text + (families.size() == 1 ? " is supported" : " are supported");
}

/// Another family's class may read the same fields differently.
void review_architecture(JsonMembers& fields, const ModelFamily& family, ModelConfig& config) {
    const json::value* given = fields.find("architectures");
    json::object written;
    family.write(config.decoder, written);
    const json::value& ours = written.at("architectures");
    if (given != nullptr && given->is_array() && !given->get_array().empty() && *given != ours) {
        config.warnings.push_back(
            fields.place()
                .at("architectures")
                .message("is " + JsonMembers::brief(*given) + "; it is taken for " + JsonMembers::brief(ours)));
    }
}

}  // namespace

std::span<const ModelFamily> model_families() noexcept {
    return kFamilies;
}

Result<ModelConfig> parse_model_config(std::string_view text, const JsonPlace& place,
                                       std::span<const ModelFamily> families) {
    if (text.empty()) {
        return invalid_input(place.message("is empty, a JSON object is expected"));
    }
    const Result<json::object> object = parse_config_object(text, place);
    if (!object) {
        return object.error();
    }
    JsonMembers fields(*object, place);
    std::string type(families.front().model_type);
    fields.text("model_type", type);
    const auto family = std::ranges::find(families, std::string_view(type), &ModelFamily::model_type);
    if (family == families.end()) {
        fields.fail("model_type", "is \"" + type + "\"; only " + known_types(families));
    }
    ModelConfig config;
    if (!fields.failed()) {
        config.family = &*family;
        family->parse(fields, config.decoder);
        review_fields(fields, family->fields, config.warnings);
        review_architecture(fields, *family, config);
    }
    if (fields.failed()) {
        return fields.error();
    }
    config.source_json = text;
    return config;
}

Result<ModelConfig> read_model_config(const fs::path& folder, std::span<const ModelFamily> families) {
    const fs::path path = folder / "config.json";
    const Result<std::string> text = read_text_file(path, kMaxConfigBytes);
    if (!text) {
        return text.error();
    }
    Result<ModelConfig> config = parse_model_config(*text, {path.string(), ""}, families);
    if (!config) {
        return config.error();
    }
    Result<std::string> generation = read_generation_config(folder);
    if (!generation) {
        return generation.error();
    }
    config->source_generation_json = std::move(*generation);
    return config;
}

Result<std::string> read_generation_config(const fs::path& folder) {
    const fs::path path = folder / "generation_config.json";
    std::error_code ignored;
    if (!fs::exists(path, ignored)) {
        return std::string();
    }
    return read_text_file(path, kMaxConfigBytes);
}

}  // namespace distilld::models
