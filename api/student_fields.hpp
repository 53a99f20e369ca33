#pragma once

#include <vector>

#include "api/spec_fields.hpp"

namespace distilld::api {

/// The rows below /student, in the order of the documentation. Part of the table that spec_table() gives.
[[nodiscard]] std::vector<SpecField> student_fields();

}  // namespace distilld::api
