#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Checks of texts that people wrote, and their quotation in messages.
namespace distilld::api {

[[nodiscard]] constexpr bool is_digit(char c) noexcept {
    return c >= '0' && c <= '9';
}
[[nodiscard]] bool has_control_character(std::string_view text);
/// Other than line feeds and tabs.
[[nodiscard]] bool has_odd_control_character(std::string_view text);

/// The closest of `candidates`, when it is close enough to be a slip of the pen.
[[nodiscard]] std::optional<std::string> closest(std::string_view word, const std::vector<std::string>& candidates);

/// `text` in quotation marks, its end left out where it is long.
[[nodiscard]] std::string quote(std::string_view text);

}  // namespace distilld::api
