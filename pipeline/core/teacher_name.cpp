#include "pipeline/core/teacher_name.hpp"

#include <utility>

namespace distilld {

std::string teacher_pointer(std::string_view name) {
    if (name == kRolloutLane) {
        return std::string(kRolloutLane);
    }
    return name.empty() ? "/teacher" : "/teachers/" + std::string(name);
}

std::string said_of_teacher(std::string_view name, std::string text) {
    if (name == kRolloutLane) {
        constexpr std::string_view kWho = "the teacher";
        for (auto at = text.find(kWho); at != std::string::npos; at = text.find(kWho, at)) {
            text.replace(at, kWho.size(), "the rollout server");
        }
        return "rollout: " + of_named_teacher(std::move(text), name);
    }
    return name.empty() ? text : "teacher " + std::string(name) + ": " + of_named_teacher(std::move(text), name);
}

std::string of_named_teacher(std::string text, std::string_view name) {
    constexpr std::string_view kPointer = "/teacher/";
    constexpr std::string_view kBefore = " (\"\n";
    const std::string named = teacher_pointer(name) + "/";
    for (std::size_t at = text.find(kPointer); at != std::string::npos; at = text.find(kPointer, at)) {
        // A URL may have such a path after its host.
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
