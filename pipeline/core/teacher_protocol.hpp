#pragma once

#include <array>

#include "base/enum_names.hpp"

namespace distilld {

/// How a teacher is spoken to over the network. What a protocol does stands in a folder (or file) of its own under
/// pipeline/teacher/protocols and in a row of the registry there.
enum class TeacherProtocol { automatic, kserve, seed, vllm, vllm_generate, sglang, trl };

/// What job specs, messages and metrics call a protocol: the one table of the names, in the order in which people are
/// told of them.
inline constexpr std::array kTeacherProtocolNames{
    EnumName<TeacherProtocol>{"kserve", TeacherProtocol::kserve},
    EnumName<TeacherProtocol>{"seed", TeacherProtocol::seed},
    EnumName<TeacherProtocol>{"vllm", TeacherProtocol::vllm},
    EnumName<TeacherProtocol>{"vllm-generate", TeacherProtocol::vllm_generate},
    EnumName<TeacherProtocol>{"sglang", TeacherProtocol::sglang},
    EnumName<TeacherProtocol>{"trl", TeacherProtocol::trl},
    EnumName<TeacherProtocol>{"auto", TeacherProtocol::automatic},
};

/// What a job that names none speaks.
inline constexpr TeacherProtocol kDefaultTeacherProtocol = kTeacherProtocolNames.front().value;

[[nodiscard]] constexpr const char* to_string(TeacherProtocol protocol) noexcept {
    return name_of(kTeacherProtocolNames, protocol);
}

}  // namespace distilld
