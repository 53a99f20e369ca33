#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "models/families/model_family.hpp"

/// Finds a network's modules by the names in a spec.
namespace distilld::models {

/// The names of all linear modules except the head, layer by layer.
[[nodiscard]] std::vector<std::string> linear_names(const ModelConfig& config);

/// Whether `target` matches `module` as in PEFT: its full name or its last parts.
[[nodiscard]] bool names_module(const std::string& target, const std::string& module);
[[nodiscard]] bool name_module(const std::vector<std::string>& targets, const std::string& module);

/// `wanted`, sorted and without duplicates; if empty, the distinct last parts of all names. The error begins with
/// `pointer`, names a target without a linear module, and lists the modules.
Result<std::vector<std::string>> resolve_modules(const ModelConfig& config, const std::vector<std::string>& wanted,
                                                 const std::string& pointer);

}  // namespace distilld::models
