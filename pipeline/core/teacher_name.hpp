#pragma once

#include <string>
#include <string_view>

namespace distilld {

// Teachers in `/teachers` have names; the empty name means `/teacher`.

/// The name of the servers that write the student's answers: its pointer is `/rollout`.
inline constexpr std::string_view kRolloutLane = "/rollout";

/// "/teachers/NAME", or "/teacher".
[[nodiscard]] std::string teacher_pointer(std::string_view name);

/// Turns a text about `/teacher` into a text about this teacher: pointers `/teacher/…` at the beginning or after a
/// space, a quotation mark or a bracket become `/teachers/NAME/…`.
[[nodiscard]] std::string of_named_teacher(std::string text, std::string_view name);

/// The same after "teacher NAME: ", for users.
[[nodiscard]] std::string said_of_teacher(std::string_view name, std::string text);

}  // namespace distilld
