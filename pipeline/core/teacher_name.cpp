#include "pipeline/core/teacher_name.hpp"

namespace distilld {

std::string of_named_teacher(std::string text, std::string_view name) {
    constexpr std::string_view kPointer = "/teacher/";
    constexpr std::string_view kBefore = " (\"\n";
    const std::string named = "/teachers/" + std::string(name) + "/";
    for (std::size_t at = text.find(kPointer); at != std::string::npos; at = text.find(kPointer, at)) {
        // A URL may have such a path, in which a host stands before it.
        if (at == 0 || kBefore.find(text[at - 1]) != std::string_view::npos) {
            text.replace(at, kPointer.size(), named);
            at += named.size();
        } else {
            at += kPointer.size();
        }
    }
    return text;
}

}  // namespace distilld
