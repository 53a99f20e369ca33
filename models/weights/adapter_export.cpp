#include "models/weights/adapter_export.hpp"

#include <torch/utils.h>

#include <map>

#include "base/files/files.hpp"
#include "base/files/open_file.hpp"
#include "models/weights/export.hpp"

namespace distilld::models {
namespace {

namespace fs = std::filesystem;
using torch::Tensor;

/// The base's own tensors, merged with their adapters.
Result<NamedTensors> merged_tensors(const ModelExport& model) {
    const torch::NoGradGuard no_grad;
    const AdapterExport& adapter = *model.adapter;
    const Result<WeightFolder> base = WeightFolder::open(adapter.base_folder, adapter.base_names);
    if (!base) {
        return base.error();
    }
    const Result<std::string> hash = base->hash();
    if (!hash) {
        return hash.error();
    }
    if (*hash != adapter.base_sha256) {
        return invalid_input(adapter.base_folder.string() +
                             ": not merged: the weights are not those that the adapter was trained beside");
    }
    std::map<std::string, Tensor> values;
    for (const Parameter& parameter : model.parameters) {
        values.emplace(parameter.name, parameter.master.detach().to(torch::kCPU).to(parameter.saved));
    }
    std::map<std::string, const AdapterExport::Module*> by_weight;
    for (const AdapterExport::Module& module : adapter.modules) {
        by_weight.emplace(module.name + ".weight", &module);
    }
    NamedTensors tensors;
    for (const std::string& name : adapter.base_tensors) {
        Result<Tensor> value = base->file_of(name)->tensor(base->name_in_file(name));
        if (!value) {
            return value.error();
        }
        if (const auto found = by_weight.find(name); found != by_weight.end()) {
            const Tensor change =
                torch::mm(values.at(found->second->b).to(torch::kFloat), values.at(found->second->a).to(torch::kFloat));
            const Tensor oriented = found->second->transposed ? change.t() : change;
            *value = (value->to(torch::kFloat) + adapter.scaling * oriented).to(value->scalar_type());
        }
        tensors.push_back({name, *value});
    }
    return tensors;
}

Result<ExportedPaths> write_merged(const fs::path& folder, const ModelExport& model) {
    const Result<NamedTensors> tensors = merged_tensors(model);
    if (!tensors) {
        return tensors.error();
    }
    return write_model_files(folder, *tensors, model);
}

}  // namespace

Result<void> remove_model_files(const fs::path& folder) {
    for (const char* name : {"config.json", "model.safetensors", "generation_config.json"}) {
        if (Result<void> removed = remove_entry(folder / name); !removed) {
            return removed;
        }
    }
    return {};
}

Result<ExportedPaths> write_adapter_folder(const fs::path& folder, const ModelExport& model) {
    const Result<NamedTensors> tensors = exported_tensors(folder, model);
    if (!tensors) {
        return tensors.error();
    }
    Result<void> done = make_folders(folder);
    if (done) {
        done = remove_model_files(folder);
    }
    Result<ExportedPaths> merged = ExportedPaths();
    if (done && model.adapter->merge) {
        merged = write_merged(folder / kMergedFolder, model);
        done = merged ? Result<void>() : merged.error();
    }
    Result<ExportedPaths> tokenizer = ExportedPaths();
    if (done) {
        done = write_safetensors(folder / kAdapterWeightsFile, *tensors, {{"format", "pt"}});
    }
    if (done && !model.tokenizer_folder.empty()) {
        tokenizer = copy_tokenizer_files(model.tokenizer_folder, folder);
        done = tokenizer ? Result<void>() : tokenizer.error();
    }
    if (done) {
        done = write_file_atomically(folder / "adapter_config.json", model.adapter->config_json);
    }
    if (!done) {
        return done.error();
    }
    return and_those({folder / kAdapterWeightsFile, folder / "adapter_config.json"},
                     and_those(*std::move(merged), std::move(tokenizer)));
}

}  // namespace distilld::models
