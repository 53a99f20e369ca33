#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Checks of texts written by people, and their quotation in messages.
namespace distilld::api {

[[nodiscard]] constexpr bool is_digit(char c) noexcept {
    return c >= '0' && c <= '9';
}
[[nodiscard]] bool has_control_character(std::string_view text);
/// Line feeds and tabs are not odd.
[[nodiscard]] bool has_odd_control_character(std::string_view text);

/// The closest of `candidates`, if it is close enough to be a typo.
[[nodiscard]] std::optional<std::string> closest(std::string_view word, const std::vector<std::string>& candidates);

/// `text` in quotation marks, shortened if it is long.
[[nodiscard]] std::string quote(std::string_view text);

/// Limit of violations that are listed; the others are only counted.
inline constexpr std::size_t kMaxListed = 50;

/// The texts of the first things with `separator` between them, followed by "and N more".
template <class Thing, class TextOf>
[[nodiscard]] std::string text_of_first(const std::vector<Thing>& things, std::string_view separator, TextOf text_of) {
    std::string text;
    for (std::size_t i = 0; i < std::min(things.size(), kMaxListed); ++i) {
        text.append(i == 0 ? "" : separator).append(text_of(things[i]));
    }
    if (things.size() > kMaxListed) {
        text.append(separator).append("and " + std::to_string(things.size() - kMaxListed) + " more");
    }
    return text;
}

}  // namespace distilld::api
