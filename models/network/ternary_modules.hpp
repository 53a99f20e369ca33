#pragma once

#include <string>
#include <vector>

#include "base/error.hpp"

namespace distilld::models {

class CausalLm;

/// Makes linear modules of a trained network ternary: those that `wanted` names (models/families/module_names.hpp), or
/// all if it is empty. Errors name /student/quantize_modules: a name without a match, or a number of outputs that is
/// not a multiple of four (four rows share a byte in an export).
Result<void> make_ternary(CausalLm& network, const std::vector<std::string>& wanted);

}  // namespace distilld::models
