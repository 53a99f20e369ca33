#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/hex.hpp"

namespace distilld {

/// At most the first `max_bytes` of the text, cut so that no UTF-8 sequence is split.
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

/// Length in bytes of the UTF-8 sequence at the beginning of `text` (not empty); 0 if there is none. Overlong forms,
/// surrogates and code points above U+10FFFF do not count (Unicode 15, table 3-7).
[[nodiscard]] constexpr std::size_t utf8_sequence(std::string_view text) noexcept {
    const auto at = [text](std::size_t index) { return static_cast<unsigned char>(text[index]); };
    const unsigned lead = at(0);
    std::size_t size = 0;
    unsigned min_second = 0x80;
    unsigned max_second = 0xBF;
    if (lead < 0x80) {
        return 1;
    }
    if (lead >= 0xC2 && lead <= 0xDF) {
        size = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
        size = 3;
        min_second = lead == 0xE0 ? 0xA0 : min_second;
        max_second = lead == 0xED ? 0x9F : max_second;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
        size = 4;
        min_second = lead == 0xF0 ? 0x90 : min_second;
        max_second = lead == 0xF4 ? 0x8F : max_second;
    }
    if (size == 0 || text.size() < size || at(1) < min_second || at(1) > max_second) {
        return 0;
    }
    for (std::size_t index = 2; index < size; ++index) {
        if ((at(index) & 0xC0U) != 0x80U) {
            return 0;
        }
    }
    return size;
}

/// Whether the whole text is UTF-8.
[[nodiscard]] constexpr bool is_utf8(std::string_view text) noexcept {
    while (!text.empty()) {
        const std::size_t size = utf8_sequence(text);
        if (size == 0) {
            return false;
        }
        text.remove_prefix(size);
    }
    return true;
}

/// Length of the longest beginning of a UTF-8 sequence at the beginning of `text`, which does not begin with a whole
/// one (Unicode 15, section 3.9: maximal subpart); at least 1.
[[nodiscard]] constexpr std::size_t utf8_subpart(std::string_view text) noexcept {
    for (std::size_t size = std::min<std::size_t>(3, text.size()); size > 1; --size) {
        std::array<char, 4> completed{};
        completed.fill(static_cast<char>(0x80));
        std::copy_n(text.begin(), size, completed.begin());
        if (utf8_sequence({completed.data(), completed.size()}) > size) {
            return size;
        }
    }
    return 1;
}

/// The text with U+FFFD for each piece that is not part of a UTF-8 sequence; `size_of` tells how long such a piece is.
[[nodiscard]] inline std::string replace_broken_utf8(std::string_view text, std::size_t (*size_of)(std::string_view)) {
    std::string valid;
    valid.reserve(text.size());
    while (!text.empty()) {
        const auto size = utf8_sequence(text);
        if (size == 0) {
            valid += "\xEF\xBF\xBD";
        } else {
            valid += text.substr(0, size);
        }
        text.remove_prefix(size == 0 ? size_of(text) : size);
    }
    return valid;
}

/// The text with U+FFFD for each maximal subpart of a broken sequence, as Python, Rust and browsers write it.
[[nodiscard]] inline std::string to_lossy_utf8(std::string_view text) {
    return replace_broken_utf8(text, [](std::string_view broken) { return utf8_subpart(broken); });
}

/// The text with U+FFFD for each byte that is not part of a UTF-8 sequence. Text from outside (a child's stderr, the
/// body of an answer) must pass through here before it is stored, because JSON must be UTF-8.
[[nodiscard]] inline std::string to_valid_utf8(std::string_view text) {
    return replace_broken_utf8(text, [](std::string_view) { return std::size_t{1}; });
}

/// Whether the sequence controls a terminal: a control character other than line feed and tab (including C1), or one
/// that changes the direction of the text (Unicode 15, "bidirectional controls").
[[nodiscard]] constexpr bool steers_a_terminal(std::string_view sequence) noexcept {
    const auto at = [sequence](std::size_t index) { return static_cast<unsigned char>(sequence[index]); };
    switch (sequence.size()) {
        case 1:
            return (at(0) < 0x20 && at(0) != '\n' && at(0) != '\t') || at(0) == 0x7F;
        case 2:
            return (at(0) == 0xC2 && at(1) < 0xA0) || (at(0) == 0xD8 && at(1) == 0x9C);  // U+0080–009F, U+061C
        case 3: {
            const unsigned last = at(2);
            return at(0) == 0xE2 && ((at(1) == 0x80 && ((last >= 0x8E && last <= 0x8F) ||    // U+200E, U+200F
                                                        (last >= 0xAA && last <= 0xAE))) ||  // U+202A–202E
                                     (at(1) == 0x81 && last >= 0xA6 && last <= 0xA9));       // U+2066–2069
        }
        default:
            return false;
    }
}

/// The text as UTF-8 for a terminal or a log. Sequences that control a terminal become \uXXXX, which is also valid in
/// JSON.
[[nodiscard]] inline std::string to_shown_utf8(std::string_view text) {
    const std::string valid = to_valid_utf8(text);
    std::string shown;
    shown.reserve(valid.size());
    for (std::string_view left = valid; !left.empty();) {
        const std::string_view sequence = left.substr(0, utf8_sequence(left));
        left.remove_prefix(sequence.size());
        if (!steers_a_terminal(sequence)) {
            shown += sequence;
            continue;
        }
        unsigned code = sequence.size() == 3   ? sequence[0] & 0x0FU
                        : sequence.size() == 2 ? sequence[0] & 0x1FU
                                               : sequence[0] & 0x7FU;
        for (const char byte : sequence.substr(1)) {
            code = (code << 6U) | (static_cast<unsigned char>(byte) & 0x3FU);
        }
        shown += "\\u" + hex(static_cast<std::uint16_t>(code));
    }
    return shown;
}

}  // namespace distilld
