#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

namespace distilld {

/// Strips the blanks at both ends.
[[nodiscard]] inline std::string_view trimmed(std::string_view text, std::string_view blanks = " \t") noexcept {
    text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
    return text.substr(0, text.find_last_not_of(blanks) + 1);
}

/// Converts ASCII letters to lower case, in every locale. Other bytes stay as they are.
[[nodiscard]] inline std::string ascii_lower(std::string_view text) {
    std::string result(text);
    for (char& c : result) {
        if (c >= 'A' && c <= 'Z') {
            c = static_cast<char>(c - 'A' + 'a');
        }
    }
    return result;
}

/// The number that is the whole text; nullopt for other texts. Neither blanks nor a plus sign are allowed.
template <class Number>
[[nodiscard]] std::optional<Number> number_from(std::string_view text) {
    Number number{};
    const char* const end = text.data() + text.size();
    const auto [stop, failed] = std::from_chars(text.data(), end, number);
    return failed == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

}  // namespace distilld
