#include "models/torchscript/module_export.hpp"

#include <torch/csrc/jit/serialization/export.h>
#include <torch/utils.h>

#include <algorithm>
#include <span>

#include "base/files/files.hpp"
#include "base/files/open_file.hpp"

namespace distilld::models {
namespace {

namespace fs = std::filesystem;
using torch::Tensor;

Result<void> save_module(const torch::jit::Module& module, const fs::path& path) {
    Result<AtomicFile> file = AtomicFile::create(path);
    if (!file) {
        return file.error();
    }
    Result<void> written;
    torch::jit::ExportModule(module, [&](const void* bytes, std::size_t size) {
        if (written) {
            written = file->write(std::span(static_cast<const std::byte*>(bytes), size));
        }
        return size;
    });
    return written ? file->commit() : written;
}

}  // namespace

std::vector<bool> training_flags(const torch::jit::Module& module) {
    std::vector<bool> flags;
    for (const auto& part : module.modules()) {
        flags.push_back(part.hasattr("training") && part.attr("training").toBool());
    }
    return flags;
}

void restore_flags(torch::jit::Module& module, const std::vector<bool>& flags) {
    std::size_t i = 0;
    for (auto part : module.modules()) {
        if (const bool flag = flags.at(i++); part.hasattr("training")) {
            part.setattr("training", flag);
        }
    }
}

Result<ExportedPaths> write_module(const fs::path& folder, const torch::jit::Module& trained,
                                   const std::map<std::string, torch::ScalarType>& saved_types) {
    const torch::NoGradGuard no_grad;
    torch::jit::Module exported = trained.deepcopy();
    NamedTensors weights;
    std::map<std::string, bool> with_gradient;  // a copy has none
    for (const auto& parameter : trained.named_parameters()) {
        with_gradient.emplace(parameter.name, parameter.value.requires_grad());
    }
    std::vector<Tensor> seen;
    for (const auto& parameter : exported.named_parameters()) {
        Tensor tensor = parameter.value;
        if (std::ranges::any_of(seen, [&tensor](const Tensor& other) { return other.is_same(tensor); })) {
            continue;  // a second name, which named_parameters() of Python leaves out too
        }
        seen.push_back(tensor);
        tensor.set_data(tensor.to(saved_types.at(parameter.name)));
        if (!all_finite(tensor)) {
            return io_error((folder / "model.pt").string() + ": parameter " + parameter.name +
                            " is not finite in the dtype of the file");
        }
        weights.push_back({parameter.name, tensor.detach()});
        tensor.set_requires_grad(with_gradient.at(parameter.name));
    }
    for (const auto& buffer : exported.named_buffers()) {
        Tensor tensor = buffer.value;
        tensor.set_data(tensor.to(saved_types.at(buffer.name)));
    }
    ExportedPaths paths{folder / "model.pt", folder / "model.safetensors"};
    if (const Result<void> made = make_folders(folder); !made) {
        return made.error();
    }
    if (const Result<void> written = write_safetensors(paths[1], weights, {{"format", "pt"}}); !written) {
        return written.error();
    }
    if (const Result<void> written = save_module(exported, paths[0]); !written) {
        return written.error();
    }
    return paths;
}

}  // namespace distilld::models
