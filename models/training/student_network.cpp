#include "models/training/student_network.hpp"

#include <filesystem>
#include <string>
#include <utility>

#include "base/files.hpp"
#include "models/families/config_json.hpp"

namespace distilld::models {
namespace {

namespace fs = std::filesystem;

/// The folder's config.json under the spec's fields.
Result<ModelConfig> merged_config(const StudentSpec& spec, std::span<const ModelFamily> families) {
    const JsonPlace in_spec{"", "/student/config"};
    std::string base;
    JsonPlace in_folder;
    if (!spec.model.empty()) {
        const fs::path path = fs::path(spec.model) / "config.json";
        Result<std::string> text = read_text_file(path, kMaxConfigBytes);
        if (!text) {
            return invalid_input("/student/model: " + text.error().message);
        }
        base = std::move(*text);
        in_folder.source = path.string();
    }
    const Result<std::string> merged = merge_config_json(base, in_folder, spec.config_json.value_or(""), in_spec);
    if (!merged) {
        return merged.error();
    }
    return parse_model_config(*merged, spec.config_json ? in_spec : in_folder, families);
}

Result<std::unique_ptr<CausalLm>> random_network(const StudentSpec& spec, std::uint64_t seed,
                                                 const torch::Device& device, std::span<const ModelFamily> families) {
    if (spec.model.empty() && !spec.config_json) {
        return invalid_input("/student: config or model is required with init random");
    }
    Result<ModelConfig> config = merged_config(spec, families);
    if (!config) {
        return config.error();
    }
    return make_causal_lm(std::move(*config), resolve_dtype(spec.dtype, device), device, seed);
}

Result<std::unique_ptr<CausalLm>> pretrained_network(const StudentSpec& spec, const torch::Device& device,
                                                     std::span<const ModelFamily> families) {
    if (spec.model.empty()) {
        return invalid_input("/student/model: is required with init pretrained");
    }
    std::error_code code;
    if (!fs::is_directory(spec.model, code)) {
        return invalid_input("/student/model: " + spec.model + " is not a folder");
    }
    const ComputeDtype dtype = resolve_dtype(spec.dtype, device);
    if (!spec.config_json) {
        return open_causal_lm(spec.model, dtype, device, families);
    }
    Result<ModelConfig> config = merged_config(spec, families);
    if (!config) {
        return config.error();
    }
    Result<std::string> generation = read_generation_config(spec.model);
    if (!generation) {
        return generation.error();
    }
    config->source_generation_json = std::move(*generation);
    return load_causal_lm(std::move(*config), spec.model, dtype, device);
}

}  // namespace

Result<std::unique_ptr<CausalLm>> make_student_network(const StudentSpec& spec, std::uint64_t seed,
                                                       const torch::Device& device,
                                                       std::span<const ModelFamily> families) {
    return spec.init == StudentInit::random ? random_network(spec, seed, device, families)
                                            : pretrained_network(spec, device, families);
}

}  // namespace distilld::models
