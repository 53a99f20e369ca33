#pragma once

#include <string>
#include <string_view>

namespace distilld {

/// In lower case: the letters of ASCII, whatever the locale. Other bytes stay as they are.
[[nodiscard]] inline std::string ascii_lower(std::string_view text) {
    std::string result(text);
    for (char& c : result) {
        if (c >= 'A' && c <= 'Z') {
            c = static_cast<char>(c - 'A' + 'a');
        }
    }
    return result;
}

}  // namespace distilld
