#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "models/families/model_family.hpp"

/// Modules of a network by what a spec calls them.
namespace distilld::models {

/// The names of all linear modules but the head, by layers.
[[nodiscard]] std::vector<std::string> linear_names(const ModelConfig& config);

/// Whether `target` names `module` as PEFT takes it: all of its name or its last parts.
[[nodiscard]] bool names_module(const std::string& target, const std::string& module);
[[nodiscard]] bool name_module(const std::vector<std::string>& targets, const std::string& module);

/// `wanted`, sorted; the last parts of all names, if it is empty. An error that begins with `pointer` where one names
/// no linear module; it says which there are.
Result<std::vector<std::string>> resolve_modules(const ModelConfig& config, const std::vector<std::string>& wanted,
                                                 const std::string& pointer);

}  // namespace distilld::models
