#pragma once

#include <string_view>
#include <vector>

#include "api/spec_fields.hpp"

namespace distilld::api {

/// The rows below /teacher, in the order of the documentation. Part of the table that spec_fields() gives.
[[nodiscard]] std::vector<SpecField> teacher_fields();

/// What the several teachers of a job are called.
inline constexpr TextForm kTeacherNameForm{
    .pattern = "[A-Za-z0-9_-]{1,64}",
    .values = "1–64 letters, digits, `_` and `-`",
    .complaint = "must be 1 to 64 letters, digits, _ and -",
};
[[nodiscard]] bool is_teacher_name(std::string_view text);

}  // namespace distilld::api
