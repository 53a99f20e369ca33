#pragma once

#include <vector>

#include "api/spec_fields.hpp"

namespace distilld::api {

/// The rows below /teacher, in the order of the documentation. Part of the table that spec_fields() gives.
[[nodiscard]] std::vector<SpecField> teacher_fields();

}  // namespace distilld::api
