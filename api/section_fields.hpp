#pragma once

#include <string_view>
#include <vector>

#include "api/spec_fields.hpp"

namespace distilld::api {

/// The rows below /student, /teacher, /rollout, /eval and /placement, in the order of the documentation: parts of
/// spec_table().
[[nodiscard]] std::vector<SpecField> student_fields();
[[nodiscard]] std::vector<SpecField> teacher_fields();
[[nodiscard]] std::vector<SpecField> rollout_fields();
[[nodiscard]] std::vector<SpecField> eval_fields();
[[nodiscard]] std::vector<SpecField> placement_fields();

/// Limit of the names of tensors, in bytes, and of their number in a list.
inline constexpr std::size_t kMaxTensorName = 256;
inline constexpr ListRange kTensorNames{.text = {.max_bytes = kMaxTensorName}, .max_count = 256, .unique = true};

/// The terms of /training/losses.
[[nodiscard]] FieldKind<JobSpec> loss_terms_kind();

/// The form of the names of variables that hold keys. Clients that submit jobs also name the endpoints: only what the
/// operator has marked as a key may be sent there.
inline constexpr TextForm kKeyVariableForm{
    .pattern = "DISTILLD_KEY_[A-Za-z0-9_]+",
    .values = "name of an environment variable, `DISTILLD_KEY_…`",
    .complaint =
        "must be the name of an environment variable that begins with DISTILLD_KEY_, such as "
        "DISTILLD_KEY_TEACHER, not the key itself",
};

/// The form of the names in /teachers.
inline constexpr TextForm kTeacherNameForm{
    .pattern = "[A-Za-z0-9_-]{1,64}",
    .values = "1–64 letters, digits, `_` and `-`",
    .complaint = "must be 1 to 64 letters, digits, _ and -",
};
[[nodiscard]] bool is_teacher_name(std::string_view text);

/// Whether an option of a cluster's command may have this name, such as "account".
[[nodiscard]] bool is_cluster_option(std::string_view name);

}  // namespace distilld::api
