#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"

namespace distilld::models {

/// What a spec's student.device comes to on this machine: "cpu", "cuda:0" … Errors are those of resolve_device().
/// Torch-free header.
Result<std::string> device_name(std::string_view text);

}  // namespace distilld::models
