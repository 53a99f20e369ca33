#pragma once

#include <cstddef>
#include <string_view>

namespace distilld {

/// The first `max_bytes` of the text, or fewer, so that no UTF-8 sequence is cut in two.
[[nodiscard]] constexpr std::string_view cut_utf8(std::string_view text, std::size_t max_bytes) noexcept {
    if (text.size() <= max_bytes) {
        return text;
    }
    std::size_t end = max_bytes;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) {
        --end;
    }
    return text.substr(0, end);
}

}  // namespace distilld
