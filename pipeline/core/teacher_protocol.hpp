#pragma once

#include <array>

#include "base/enum_names.hpp"

namespace distilld {

/// The protocol of a teacher's endpoints. Each has a folder or file in pipeline/teacher/protocols and a row in the
/// registry there.
enum class TeacherProtocol { automatic, kserve, seed, vllm, vllm_generate, sglang, trl };

/// The names of protocols in job specs, messages and metrics, in the order of the documentation.
inline constexpr std::array kTeacherProtocolNames{
    EnumName<TeacherProtocol>{"kserve", TeacherProtocol::kserve},
    EnumName<TeacherProtocol>{"seed", TeacherProtocol::seed},
    EnumName<TeacherProtocol>{"vllm", TeacherProtocol::vllm},
    EnumName<TeacherProtocol>{"vllm-generate", TeacherProtocol::vllm_generate},
    EnumName<TeacherProtocol>{"sglang", TeacherProtocol::sglang},
    EnumName<TeacherProtocol>{"trl", TeacherProtocol::trl},
    EnumName<TeacherProtocol>{"auto", TeacherProtocol::automatic},
};

/// The default.
inline constexpr TeacherProtocol kDefaultTeacherProtocol = kTeacherProtocolNames.front().value;

[[nodiscard]] constexpr const char* to_string(TeacherProtocol protocol) noexcept {
    return name_of(kTeacherProtocolNames, protocol);
}

}  // namespace distilld
