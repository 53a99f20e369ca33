#include "models/network/lora.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/utils.h>

#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "base/join.hpp"
#include "models/families/module_names.hpp"
#include "models/network/causal_lm.hpp"
#include "models/network/parameter.hpp"
#include "models/weights/safetensors.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;

constexpr const char* kPrefix = "base_model.model.";

bool is_adapter(const Parameter& parameter) {
    return parameter.trainable;
}

/// Checks everything about the file's tensors except their values.
Result<void> check_adapters(const SafetensorsFile& file, const std::vector<ParameterGroup>& groups) {
    const std::string where = file.path().string();
    std::set<std::string> expected;
    for (const ParameterGroup& group : groups) {
        for (const Parameter& parameter : group.parameters) {
            if (!is_adapter(parameter)) {
                continue;
            }
            expected.insert(parameter.name);
            const auto* entry = file.find(parameter.name);
            if (entry == nullptr) {
                return invalid_input(where + ": tensor " + parameter.name + " is missing");
            }
            if (at::IntArrayRef(entry->shape) != parameter.master.sizes() || !is_weight_type(entry->dtype)) {
                return invalid_input(where + ": tensor " + parameter.name + " is " +
                                     std::string(c10::toString(entry->dtype)) + " " + shape_text(entry->shape) +
                                     "; F32, F16 or BF16 of shape " + shape_text(parameter.master.sizes()) +
                                     " is expected");
            }
        }
    }
    for (const std::string& name : file.names()) {
        if (!expected.contains(name)) {
            return invalid_input(where + ": tensor " + name + " does not belong to an adapter of this model");
        }
    }
    return {};
}

}  // namespace

LoraAdapter::LoraAdapter(ParameterGroup& group, const Linear& module, const LoraSpec& spec,
                         const std::uint64_t& dropout_seed)
    : a_(&declare_parameter(group, kPrefix + module.name() + ".lora_A.weight",
                            {static_cast<std::int64_t>(spec.r), module.inputs()}, InitialValues::normal)),
      b_(&declare_parameter(group, kPrefix + module.name() + ".lora_B.weight",
                            {module.outputs(), static_cast<std::int64_t>(spec.r)}, InitialValues::zeros)),
      scaling_(spec.alpha / static_cast<double>(spec.r)),
      dropout_(dropout_seed, spec.dropout, module.name()) {}

Tensor LoraAdapter::add_to(const Tensor& output, const Tensor& input, ProductKind kind) const {
    const auto type = input.scalar_type();
    const Tensor narrow = product(dropout_.forward(input), weight_of(*a_, type), {}, kind);
    return at::add(output, product(narrow, weight_of(*b_, type), {}, kind), scaling_);
}

Result<void> declare_adapters(CausalLm& network, const LoraSpec& spec, std::uint64_t seed, const std::string& field) {
    const std::vector<LinearModule> modules = network.linear_modules();
    Result<std::vector<std::string>> targets = resolve_modules(network.config(), spec.target_modules, field);
    if (!targets) {
        return targets.error();
    }
    auto set = std::make_unique<AdapterSet>();
    set->spec = spec;
    set->spec.target_modules = std::move(*targets);
    set->seed = seed;
    network.set_dropout_seed(seed);
    set->files.scaling = spec.alpha / static_cast<double>(spec.r);
    set->files.merge = spec.merge;
    for (ParameterGroup& group : network.groups()) {
        for (Parameter& parameter : group.parameters) {
            parameter.trainable = false;
            set->files.base_tensors.push_back(parameter.name);
        }
    }
    for (const auto& [group, linear] : modules) {
        if (!name_module(set->spec.target_modules, linear->name())) {
            continue;
        }
        auto adapter =
            std::make_unique<const LoraAdapter>(network.groups()[group], *linear, set->spec, network.dropout_seed());
        set->files.modules.push_back({linear->name(), adapter->a().name, adapter->b().name, linear->transposed()});
        linear->adapt(std::move(adapter));
    }
    network.set_adapters(std::move(set));
    return {};
}

void initialize_adapters(CausalLm& network) {
    const torch::NoGradGuard no_grad;
    const torch::ScalarType type = master_type(network.dtype());
    for (std::size_t index = 0; index < network.groups().size(); ++index) {
        for (Parameter& parameter : network.groups()[index].parameters) {
            if (!is_adapter(parameter)) {
                continue;
            }
            Tensor values = torch::zeros(parameter.master.sizes(), torch::kFloat);
            if (parameter.initial != InitialValues::zeros) {
                const double bound = 1.0 / std::sqrt(static_cast<double>(values.size(1)));
                auto generator = at::make_generator<at::CPUGeneratorImpl>(
                    dropout_key(network.adapters()->seed, 0, number_of_name(parameter.name)));
                values.uniform_(-bound, bound, generator);
            }
            parameter.master = values.to(network.group_device(index), type).requires_grad_(true);
        }
    }
}

Result<void> check_adapter_file(const CausalLm& network, const std::filesystem::path& folder) {
    const Result<SafetensorsFile> file = SafetensorsFile::open(folder / kAdapterWeightsFile);
    return file ? check_adapters(*file, network.groups()) : file.error();
}

Result<void> read_adapters(CausalLm& network, const std::filesystem::path& folder) {
    const torch::NoGradGuard no_grad;
    const Result<SafetensorsFile> file = SafetensorsFile::open(folder / kAdapterWeightsFile);
    if (!file) {
        return file.error();
    }
    if (const Result<void> checked = check_adapters(*file, network.groups()); !checked) {
        return checked.error();
    }
    for (ParameterGroup& group : network.groups()) {
        for (Parameter& parameter : group.parameters) {
            if (!is_adapter(parameter)) {
                continue;
            }
            const Result<Tensor> value = file->tensor(parameter.name);
            if (!value) {
                return value.error();
            }
            if (!all_finite(*value)) {
                return invalid_input(file->path().string() + ": tensor " + parameter.name + " holds NaN or infinity");
            }
            parameter.saved = value->scalar_type();
            parameter.master.copy_(*value);
        }
    }
    return {};
}

}  // namespace distilld::models
