#include "api/spec_comments.hpp"

#include <algorithm>

namespace distilld::api {

namespace {

/// The position after the string that begins at `at`, including its quotation marks.
std::size_t end_of_string(std::string_view text, std::size_t at) {
    for (++at; at < text.size() && text[at] != '"' && text[at] != '\n'; ++at) {
        at += text[at] == '\\' ? 1 : 0;
    }
    return std::min(at + 1, text.size());
}

/// The position after the comment that begins at `at`; `at` if there is none, or it has no end.
std::size_t end_of_comment(std::string_view text, std::size_t at) {
    const std::string_view rest = text.substr(at);
    if (rest.starts_with("//")) {
        return std::min(text.find('\n', at), text.size());
    }
    const std::size_t end = rest.starts_with("/*") ? text.find("*/", at + 2) : std::string_view::npos;
    return end == std::string_view::npos ? at : end + 2;
}

}  // namespace

std::string without_comments(std::string_view text) {
    std::string bare(text);
    std::size_t last = std::string::npos;  // last character so far that is neither blank nor comment
    bool ends_member = false;              // that character is a comma after a member
    for (std::size_t at = 0; at < text.size();) {
        if (const std::size_t end = end_of_comment(text, at); end != at) {
            std::ranges::replace_if(
                bare.begin() + static_cast<std::ptrdiff_t>(at), bare.begin() + static_cast<std::ptrdiff_t>(end),
                [](char c) { return c != '\n'; }, ' ');
            at = end;
            continue;
        }
        const char c = text[at];
        if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
            ++at;
            continue;
        }
        if (ends_member && (c == '}' || c == ']')) {
            bare[last] = ' ';
        }
        ends_member =
            c == ',' && last != std::string::npos && text[last] != '{' && text[last] != '[' && text[last] != ',';
        last = at;
        at = c == '"' ? end_of_string(text, at) : at + 1;
    }
    return bare;
}

}  // namespace distilld::api
