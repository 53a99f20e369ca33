#include "models/network/causal_lm.hpp"

#include <torch/utils.h>

#include <algorithm>
#include <boost/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "base/join.hpp"
#include "base/json_text.hpp"
#include "models/families/config_json.hpp"
#include "models/network/decoder.hpp"
#include "models/network/device.hpp"
#include "models/network/lora.hpp"
#include "models/network/parameter.hpp"
#include "models/weights/weight_folder.hpp"

namespace distilld::models {
namespace {

/// Tensors that a folder may contain although the network has no parameter for them.
bool is_ignorable(const std::string& name, const ModelConfig& config) {
    const DecoderNames& names = config.family->names;
    const auto is_suffix = [&](std::string_view suffix) { return !suffix.empty() && name.ends_with(suffix); };
    return std::ranges::any_of(names.ignored_suffixes, is_suffix) ||
           (config.decoder.tie_word_embeddings && name == std::string(names.head) + ".weight");
}

/// Checks everything about the tensors except their values.
Result<void> check_tensors(const WeightFolder& weights, const CausalLm& network) {
    std::set<std::string> expected;
    for (const Parameter& parameter : all_parameters(network.groups())) {
        expected.insert(parameter.name);
        const SafetensorsFile* file = weights.file_of(parameter.name);
        if (file == nullptr) {
            return invalid_input(weights.folder().string() + ": tensor " + parameter.name + " is missing");
        }
        const auto* entry = file->find(weights.name_in_file(parameter.name));
        if (at::IntArrayRef(entry->shape) != parameter.held().sizes()) {
            return invalid_input(file->path().string() + ": tensor " + parameter.name + " has shape " +
                                 shape_text(entry->shape) + ", the configuration asks for " +
                                 shape_text(parameter.held().sizes()));
        }
        if (!is_weight_type(entry->dtype)) {
            return invalid_input(file->path().string() + ": tensor " + parameter.name + " has dtype " +
                                 std::string(c10::toString(entry->dtype)) + "; F32, F16 or BF16 is expected");
        }
    }
    constexpr std::size_t kMaxNamed = 5;
    std::string unexpected;
    std::size_t count = 0;
    for (const std::string& name : weights.names()) {
        if (!expected.contains(name) && !is_ignorable(name, network.config())) {
            unexpected += count < kMaxNamed ? (count == 0 ? "" : ", ") + name : "";
            ++count;
        }
    }
    if (count > 0) {
        return invalid_input(weights.folder().string() + ": " + std::to_string(count) +
                             " tensors do not belong to this network: " + unexpected +
                             (count > kMaxNamed ? ", …" : ""));
    }
    return {};
}

Error not_finite(const SafetensorsFile& file, const Parameter& parameter) {
    return invalid_input(file.path().string() + ": tensor " + parameter.name +
                         " holds NaN or infinity; the file is damaged, or was saved by a run that failed");
}

/// Allocates what an inference-only network holds of each tensor; tensors that the file has in `type` are used as read.
/// All at once: otherwise the heap would keep gaps from the files' freed tensors.
void allocate_converted(const WeightFolder& weights, CausalLm& network) {
    const torch::ScalarType type = to_scalar_type(network.dtype());
    for (std::size_t index = 0; index < network.groups().size(); ++index) {
        const torch::Device device = network.group_device(index);
        for (Parameter& parameter : network.groups()[index].parameters) {
            const auto* entry = weights.file_of(parameter.name)->find(weights.name_in_file(parameter.name));
            if (!device.is_cpu() || entry->dtype != type) {
                const auto options = torch::TensorOptions().dtype(type).device(device);
                parameter.compute = torch::empty(parameter.master.sizes(), options);
            }
        }
    }
}

/// Uses the files' own pages; reads them only to look for NaN.
Result<void> map_tensors(const WeightFolder& weights, CausalLm& network) {
    const torch::ScalarType type = to_scalar_type(network.dtype());
    for (ParameterGroup& group : network.groups()) {
        for (Parameter& parameter : group.parameters) {
            const SafetensorsFile& file = *weights.file_of(parameter.name);
            const std::string& name = weights.name_in_file(parameter.name);
            const torch::ScalarType saved = file.find(name)->dtype;
            if (saved != type) {
                return invalid_input(
                    "/teacher/placement: weights can be shared only as they are: " + file.path().string() + " holds " +
                    parameter.name + " in " + dtype_name(saved) + ", and the arithmetic is " + dtype_name(type) +
                    "; set /teacher/dtype, or save the model in " + dtype_name(type));
            }
            const Result<torch::Tensor> value = file.mapped_tensor(name);
            if (!value) {
                return value.error();
            }
            if (!all_finite(*value)) {
                return not_finite(file, parameter);
            }
            keep_converted(parameter, *value);
        }
    }
    return {};
}

/// Reads into the masters, or for inference.
Result<void> read_tensors(const WeightFolder& weights, std::vector<ParameterGroup>& groups, WeightUse use) {
    const torch::NoGradGuard no_grad;
    for (ParameterGroup& group : groups) {
        for (Parameter& parameter : group.parameters) {
            const SafetensorsFile& file = *weights.file_of(parameter.name);
            const Result<torch::Tensor> value = file.tensor(weights.name_in_file(parameter.name));
            if (!value) {
                return value.error();
            }
            if (!all_finite(*value)) {
                return not_finite(file, parameter);
            }
            parameter.saved = value->scalar_type();
            if (use == WeightUse::training) {
                parameter.master.copy_(*value);
            } else {
                keep_converted(parameter, parameter.compute.defined() ? parameter.compute.copy_(*value) : *value);
            }
        }
    }
    return {};
}

/// In the form in which transformers reads its BitNet format.
std::string quantized_config(const std::string& config_json, const TernaryModules& modules,
                             const ModelConfig& description) {
    boost::json::object config = boost::json::parse(config_json).get_object();
    boost::json::array plain(modules.others.begin(), modules.others.end());
    plain.emplace_back(description.family->names.head);
    config["quantization_config"] = {{"quant_method", "bitnet"},
                                     {"linear_class", "bitlinear"},
                                     {"quantization_mode", "offline"},
                                     {"use_rms_norm", false},
                                     {"modules_to_not_convert", std::move(plain)}};
    return pretty_json(config);
}

}  // namespace

NamePrefix names_in_files(const ModelFamily& family) {
    return {family.names.optional_prefix, std::string(family.names.head) + ".weight"};
}

CausalLm::CausalLm() {
    set_up_vector_math();
}
CausalLm::~CausalLm() = default;

void CausalLm::set_adapters(std::unique_ptr<AdapterSet> adapters) {
    adapters_ = std::move(adapters);
}

ModelExport CausalLm::model_export(const std::optional<SpecialTokens>& special) const {
    ModelConfig description = config();
    if (special) {
        set_special_tokens(description, *special);
    }
    ModelExport model;
    model.parameters = all_parameters(groups());
    model.config_json = to_config_json(description, dtype_name(model.parameters.front().saved));
    if (adapters_) {
        std::erase_if(model.parameters, [](const Parameter& parameter) { return !parameter.trainable; });
        model.adapter = adapters_->files;
    }
    if (!ternary_.ternary.empty()) {
        model.ternary = {ternary_.ternary, quantized_config(model.config_json, ternary_, description)};
    }
    model.generation_config_json = to_generation_config_json(description);
    return model;
}

std::string CausalLm::canonical_config() const {
    ModelConfig canonical = config();
    canonical.source_json.clear();
    const std::string text = to_config_json(canonical, dtype_name(torch::kFloat));
    if (!adapters_ && ternary_.ternary.empty()) {
        return text;
    }
    boost::json::value grown = boost::json::parse(text);
    boost::json::object& object = grown.get_object();
    if (!ternary_.ternary.empty()) {
        object["ternary_modules"] = boost::json::value_from(ternary_.ternary);
    }
    if (adapters_) {
        object["lora_r"] = adapters_->spec.r;
        object["lora_alpha"] = adapters_->spec.alpha;
        object["lora_target_modules"] = boost::json::value_from(adapters_->spec.target_modules);
        object["base_weights_sha256"] = adapters_->files.base_sha256;
    }
    return to_text(grown);
}

std::unique_ptr<CausalLm> make_causal_lm(ModelConfig config, ComputeDtype dtype, const torch::Device& device,
                                         std::uint64_t seed) {
    const double deviation = config.decoder.initializer_range;
    std::unique_ptr<CausalLm> network = make_decoder(std::move(config), dtype, {device});
    allocate_parameters(network->groups(), master_type(dtype), device);
    initialize_parameters(network->groups(), seed, deviation);
    return network;
}

Result<std::unique_ptr<CausalLm>> load_causal_lm(ModelConfig config, const std::filesystem::path& folder,
                                                 ComputeDtype dtype, const torch::Device& device, WeightUse use) {
    return load_causal_lm(std::move(config), folder, dtype, std::vector<torch::Device>{device}, use);
}

Result<std::unique_ptr<CausalLm>> load_causal_lm(ModelConfig config, const std::filesystem::path& folder,
                                                 ComputeDtype dtype, const std::vector<torch::Device>& devices,
                                                 WeightUse use) {
    const Result<WeightFolder> weights = WeightFolder::open(folder, names_in_files(*config.family));
    if (!weights) {
        return weights.error();
    }
    std::unique_ptr<CausalLm> network = make_decoder(std::move(config), dtype, devices);
    if (const Result<void> checked = check_tensors(*weights, *network); !checked) {
        return checked.error();
    }
    if (use == WeightUse::mapped) {
        const Result<void> mapped = map_tensors(*weights, *network);
        return mapped ? Result<std::unique_ptr<CausalLm>>(std::move(network)) : mapped.error();
    }
    if (use == WeightUse::training) {
        allocate_parameters(network->groups(), master_type(dtype), devices.front());
    } else {
        allocate_converted(*weights, *network);
    }
    if (const Result<void> read = read_tensors(*weights, network->groups(), use); !read) {
        return read.error();
    }
    return network;
}

Result<std::unique_ptr<CausalLm>> open_causal_lm(const std::filesystem::path& folder, ComputeDtype dtype,
                                                 const torch::Device& device, std::span<const ModelFamily> families,
                                                 WeightUse use) {
    return open_causal_lm(folder, dtype, std::vector<torch::Device>{device}, families, use);
}

Result<std::unique_ptr<CausalLm>> open_causal_lm(const std::filesystem::path& folder, ComputeDtype dtype,
                                                 const std::vector<torch::Device>& devices,
                                                 std::span<const ModelFamily> families, WeightUse use) {
    Result<ModelConfig> config = read_model_config(folder, families);
    if (!config) {
        return config.error();
    }
    return load_causal_lm(std::move(*config), folder, dtype, devices, use);
}

}  // namespace distilld::models
