#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "pipeline/core/spec_sections.hpp"

/// Values that a spec leaves to the machine. Torch-free header.
namespace distilld::models {

/// The effective student.device of a spec on this machine: "cpu", "cuda:0" … Errors are those of resolve_device().
Result<std::string> device_name(std::string_view text);

/// The student.device of one of several ranks on a machine: "auto" and "cuda" distribute them over its CUDA devices.
[[nodiscard]] std::string device_of_rank(const std::string& text, std::uint32_t local_rank);

/// The effective student.dtype on `device`, a name of device_name(): never auto_select.
Result<Dtype> effective_dtype(Dtype wanted, std::string_view device);

/// "2.9.1", with the suffix of a custom build.
std::string libtorch_version();

}  // namespace distilld::models
