#include "models/weights/ternary_export.hpp"

#include <set>

#include "models/network/ternary.hpp"
#include "models/weights/export.hpp"

namespace distilld::models {

Result<ExportedPaths> write_ternary_folder(const std::filesystem::path& folder, const ModelExport& model) {
    Result<NamedTensors> plain = exported_tensors(folder, model);
    if (!plain) {
        return plain.error();
    }
    std::set<std::string> ternary;
    for (const std::string& module : model.ternary->modules) {
        ternary.insert(module + ".weight");
    }
    NamedTensors tensors;
    for (NamedTensor& named : *plain) {
        if (!ternary.contains(named.name)) {
            tensors.push_back(std::move(named));
            continue;
        }
        const TernaryWeight weight = ternary_weight(named.tensor.to(torch::kCPU, torch::kFloat));
        tensors.push_back({named.name, pack_ternary(weight.values)});
        tensors.push_back(
            {named.name + "_scale", weight.scale.reciprocal().reshape({1}).to(named.tensor.scalar_type())});
    }
    ModelExport packed;
    packed.config_json = model.ternary->config_json;
    packed.generation_config_json = model.generation_config_json;
    packed.tokenizer_folder = model.tokenizer_folder;
    return write_model_files(folder, tensors, packed);
}

}  // namespace distilld::models
