#include "server/security/bearer.hpp"

#include <algorithm>
#include <cctype>
#include <string>

namespace distilld {

std::optional<std::string_view> bearer_of(const http::Request& request) {
    constexpr std::string_view kScheme = "bearer ";
    const auto lower = [](unsigned char c) { return static_cast<char>(std::tolower(c)); };
    std::optional<std::string_view> found;
    for (const auto& [name, value] : request.headers) {
        if (!std::ranges::equal(std::string_view("authorization"), name, {}, {}, lower)) {
            continue;
        }
        const std::string_view text(value);
        if (found || !std::ranges::equal(kScheme, text.substr(0, kScheme.size()), {}, {}, lower)) {
            return std::nullopt;
        }
        found = text.substr(std::min(text.find_first_not_of(' ', kScheme.size()), text.size()));
    }
    return found;
}

}  // namespace distilld
