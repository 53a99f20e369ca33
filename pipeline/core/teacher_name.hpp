#pragma once

#include <string>
#include <string_view>

namespace distilld {

/// What is said of `/teacher`, said of that one of several teachers: the pointers `/teacher/…` in the text, which begin
/// it or stand behind a space or a bracket, become `/teachers/NAME/…`.
[[nodiscard]] std::string of_named_teacher(std::string text, std::string_view name);

}  // namespace distilld
