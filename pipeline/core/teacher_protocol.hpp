#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace distilld {

/// How a teacher is spoken to over the network. What a protocol does stands in a folder (or file) of its own under
/// pipeline/teacher/protocols and in a row of the registry there.
enum class TeacherProtocol { kserve, seed };

/// What job specs, messages and metrics call a protocol.
struct TeacherProtocolName {
    const char* text;
    TeacherProtocol value;
};

/// The one table of the names, in the order in which people are told of them.
inline constexpr std::array kTeacherProtocolNames{
    TeacherProtocolName{"kserve", TeacherProtocol::kserve},
    TeacherProtocolName{"seed", TeacherProtocol::seed},
};

/// What a job that names none speaks.
inline constexpr TeacherProtocol kDefaultTeacherProtocol = kTeacherProtocolNames.front().value;

/// "unknown" for a value without a name.
[[nodiscard]] constexpr const char* to_string(TeacherProtocol protocol) noexcept {
    for (const TeacherProtocolName& name : kTeacherProtocolNames) {
        if (name.value == protocol) {
            return name.text;
        }
    }
    return "unknown";
}

/// Nothing for a text that names no protocol.
[[nodiscard]] constexpr std::optional<TeacherProtocol> teacher_protocol_from_string(std::string_view text) noexcept {
    for (const TeacherProtocolName& name : kTeacherProtocolNames) {
        if (text == name.text) {
            return name.value;
        }
    }
    return std::nullopt;
}

}  // namespace distilld
