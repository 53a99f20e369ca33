#include "api/http_message.hpp"

#include <algorithm>

namespace distilld::api {
namespace {

// Header names are ASCII; the locale must not matter.
char lower(char c) noexcept {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool equal_without_case(std::string_view a, std::string_view b) noexcept {
    return a.size() == b.size() &&
           std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace

std::optional<std::string_view> Request::header(std::string_view name) const {
    for (const auto& [key, value] : headers) {
        if (equal_without_case(key, name)) {
            return value;
        }
    }
    return std::nullopt;
}

std::optional<std::string_view> Request::query_value(std::string_view name) const {
    for (const auto& [key, value] : query) {
        if (key == name) {
            return value;
        }
    }
    return std::nullopt;
}

std::string_view Request::path_parameter(std::string_view name) const {
    for (const auto& [key, value] : path_parameters) {
        if (key == name) {
            return value;
        }
    }
    return {};
}

}  // namespace distilld::api
