#pragma once

#include <cstddef>
#include <string_view>

namespace distilld {

/// Bytes [begin, end) of a text.
struct TextSpan {
    std::size_t begin = 0;
    std::size_t end = 0;

    [[nodiscard]] bool empty() const noexcept { return begin == end; }
    [[nodiscard]] std::string_view of(std::string_view text) const noexcept { return text.substr(begin, end - begin); }

    friend bool operator==(const TextSpan&, const TextSpan&) = default;
};

}  // namespace distilld
