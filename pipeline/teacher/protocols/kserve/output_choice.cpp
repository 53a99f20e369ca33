#include "pipeline/teacher/protocols/kserve/output_choice.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <boost/system/error_code.hpp>
#include <limits>
#include <optional>
#include <string_view>
#include <variant>

#include "pipeline/teacher/protocols/kserve/infer_inputs.hpp"

namespace distilld::kserve {

namespace json = boost::json;

namespace {

/// Whether the configuration marks the input as optional.
bool is_optional(const json::object& input) {
    const json::value* optional = input.if_contains("optional");
    return optional != nullptr && optional->is_bool() && optional->get_bool();
}

constexpr std::string_view kHiddenStates = "hidden_states";

const TensorSpec* find_logits(const ModelMetadata& metadata) {
    for (const char* name : {"logits", "context_logits"}) {
        if (const TensorSpec* spec = metadata.find_output(name)) {
            return spec;
        }
    }
    return nullptr;
}

bool has_topk(const ModelMetadata& metadata) {
    return metadata.find_output("topk_ids") != nullptr && metadata.find_output("topk_logprobs") != nullptr;
}

/// Width of the hidden states; 0 if they are not offered.
std::uint32_t hidden_width(const ModelMetadata& metadata) {
    const std::uint64_t width = positive_parameter(metadata.parameters, "hidden_size");
    const bool on_offer = metadata.find_output(kHiddenStates) != nullptr && !head_sha256(metadata.parameters).empty();
    return on_offer && width <= std::numeric_limits<std::int32_t>::max() ? static_cast<std::uint32_t>(width) : 0;
}

std::uint64_t row_bytes(const TensorSpec& spec, std::uint64_t width) {
    return width * datatype_size(spec.datatype).value_or(8);
}

/// Whether hidden states take fewer bytes per position than full logits.
bool is_smaller(const ModelMetadata& metadata, const TensorSpec& logits, std::uint32_t width,
                std::uint32_t vocabulary) {
    const std::uint64_t tokens = vocabulary != 0 ? vocabulary : positive_parameter(metadata.parameters, "vocab_size");
    return row_bytes(*metadata.find_output(kHiddenStates), width) < row_bytes(logits, tokens);
}

Error no_hidden_states(const ModelMetadata& metadata) {
    std::string why = "its parameters lack hidden_size or head_sha256";
    if (metadata.find_output(kHiddenStates) == nullptr) {
        why = "it has no output 'hidden_states' (its outputs: " + names_of(metadata.outputs) + ")";
    }
    return teacher_error("/teacher/targets: is hidden, but the model does not offer hidden states: " + why);
}

}  // namespace

Result<ModelConfig> parse_model_config(std::string_view text) {
    boost::system::error_code failed;
    const json::value value = json::parse(text, failed);
    const json::object* object = failed ? nullptr : value.if_object();
    if (object == nullptr) {
        return teacher_error("the model's configuration is not a JSON object");
    }
    ModelConfig config;
    if (const json::value* size = object->if_contains("max_batch_size");
        size != nullptr && size->is_int64() && size->get_int64() > 0) {
        config.max_batch_size = static_cast<std::uint64_t>(size->get_int64());
    }
    const json::value* inputs = object->if_contains("input");
    if (inputs == nullptr || !inputs->is_array()) {
        return config;
    }
    for (const json::value& entry : inputs->get_array()) {
        const json::object* input = entry.if_object();
        const json::value* name = input == nullptr ? nullptr : input->if_contains("name");
        if (name != nullptr && name->is_string() && !is_optional(*input)) {
            config.required_inputs.emplace_back(name->get_string());
        }
    }
    return config;
}

std::uint64_t positive_parameter(const Parameters& parameters, const std::string& name) {
    const auto found = parameters.find(name);
    const auto* number = found == parameters.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
    return number != nullptr && *number > 0 ? static_cast<std::uint64_t>(*number) : 0;
}

std::uint32_t vocabulary_of(const ModelMetadata& metadata) {
    std::uint64_t size = positive_parameter(metadata.parameters, "vocab_size");
    const TensorSpec* logits = size == 0 ? find_logits(metadata) : nullptr;
    if (logits != nullptr && !logits->shape.empty() && logits->shape.back() > 0) {
        size = static_cast<std::uint64_t>(logits->shape.back());
    }
    return size <= std::numeric_limits<std::int32_t>::max() ? static_cast<std::uint32_t>(size) : 0;
}

std::string text_parameter(const Parameters& parameters, const std::string& name) {
    const auto found = parameters.find(name);
    const auto* text = found == parameters.end() ? nullptr : std::get_if<std::string>(&found->second);
    return text == nullptr ? std::string() : *text;
}

Result<OutputChoice> choose_output(const ModelMetadata& metadata, TargetsWanted wanted) {
    OutputChoice hidden{TeacherTargets::Kind::hidden_states, std::string(kHiddenStates), hidden_width(metadata)};
    if (wanted.targets == TargetsChoice::hidden) {
        return hidden.width != 0 ? Result<OutputChoice>(hidden) : no_hidden_states(metadata);
    }
    if (wanted.top_k > 0 && has_topk(metadata)) {
        return OutputChoice{};
    }
    const TensorSpec* logits = find_logits(metadata);
    const bool may_choose = wanted.top_k == 0 && wanted.targets == TargetsChoice::automatic;
    if (may_choose && hidden.width != 0 &&
        (logits == nullptr || is_smaller(metadata, *logits, hidden.width, wanted.vocabulary))) {
        return hidden;
    }
    if (logits != nullptr) {
        return OutputChoice{TeacherTargets::Kind::logits, logits->name, 0};
    }
    if (has_topk(metadata)) {
        return teacher_error("/teacher/top_k: the model answers with top-k only: set it above 0");
    }
    return teacher_error(
        "the model has none of the outputs topk_ids with topk_logprobs, logits, context_logits (its outputs: " +
        names_of(metadata.outputs) + ")");
}

}  // namespace distilld::kserve
