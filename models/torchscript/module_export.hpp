#pragma once

#include <torch/script.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "models/weights/export.hpp"

namespace distilld::models {

/// Whether each submodule is in its training mode.
[[nodiscard]] std::vector<bool> training_flags(const torch::jit::Module& module);

/// Sets them, of a module with the same submodules.
void restore_flags(torch::jit::Module& module, const std::vector<bool>& flags);

/// Writes a module as model.pt (as torch.jit.save() does) and its parameters, by their names, as model.safetensors, in
/// these dtypes, each atomically. Refuses a parameter that is not finite in its dtype. Any thread.
Result<ExportedPaths> write_module(const std::filesystem::path& folder, const torch::jit::Module& trained,
                                   const std::map<std::string, torch::ScalarType>& saved_types);

}  // namespace distilld::models
