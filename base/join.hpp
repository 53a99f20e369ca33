#pragma once

#include <concepts>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

namespace distilld {

/// Joins elements, for people. `text` converts an element to text; numbers are written by std::to_string().
template <class Range, class Text = std::identity>
[[nodiscard]] std::string joined(const Range& elements, std::string_view between = ", ", Text text = {}) {
    std::string all;
    bool first = true;
    for (const auto& element : elements) {
        all += first ? std::string_view() : between;
        first = false;
        decltype(auto) shown = std::invoke(text, element);
        if constexpr (std::integral<std::remove_cvref_t<decltype(shown)>>) {
            all += std::to_string(shown);
        } else {
            all += shown;
        }
    }
    return all;
}

/// "[2, 31]"
template <class Sizes>
[[nodiscard]] std::string shape_text(const Sizes& sizes) {
    return "[" + joined(sizes) + "]";
}

}  // namespace distilld
