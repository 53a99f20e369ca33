#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"

namespace distilld::models {

class CausalLm;

/// Makes linear modules of a network that learns ternary: those that `wanted` names (models/families/module_names.hpp),
/// or all. Errors name /student/quantize_modules: a name that fits nothing, a module whose outputs four does not divide
/// (four of its rows share a byte in an export).
Result<void> make_ternary(CausalLm& network, const std::vector<std::string>& wanted);

}  // namespace distilld::models
