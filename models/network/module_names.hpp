#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"
#include "models/network/linear.hpp"

/// Modules of a network by what a spec calls them.
namespace distilld::models {

/// Whether `target` names `module` as PEFT takes it: all of its name or its last parts.
[[nodiscard]] bool names_module(const std::string& target, const std::string& module);
[[nodiscard]] bool name_module(const std::vector<std::string>& targets, const std::string& module);

/// `wanted`, sorted; the last parts of all names, if it is empty. An error that begins with `pointer` where one names
/// none of `modules`; it says which there are.
Result<std::vector<std::string>> resolve_modules(const std::vector<LinearModule>& modules,
                                                 const std::vector<std::string>& wanted, const std::string& pointer);

}  // namespace distilld::models
