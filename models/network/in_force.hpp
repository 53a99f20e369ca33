#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"
#include "pipeline/core/job_spec.hpp"

/// What a spec leaves to the machine. Torch-free header.
namespace distilld::models {

/// What a spec's student.dtype comes to on `device`, a name of device_name(): never auto_select.
Result<Dtype> dtype_in_force(Dtype wanted, std::string_view device);

/// "2.9.1", with what follows it in a build of its own.
std::string libtorch_version();

}  // namespace distilld::models
