#pragma once

#include <algorithm>
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

/// What serves a student that trains, so that it writes its own answers.
enum class RolloutProtocol { automatic, distilld, vllm, sglang };

/// Also what `owned_by` of GET /v1/models says.
inline constexpr std::array kRolloutProtocolNames{
    EnumName<RolloutProtocol>{"auto", RolloutProtocol::automatic},
    EnumName<RolloutProtocol>{"distilld", RolloutProtocol::distilld},
    EnumName<RolloutProtocol>{"vllm", RolloutProtocol::vllm},
    EnumName<RolloutProtocol>{"sglang", RolloutProtocol::sglang},
};

/// How a kind of server takes the student's weights, and is asked for its answers.
struct RolloutDialect {
    RolloutProtocol protocol;
    const char* answers;  ///< page that writes them
    bool native;          ///< it is SGLang's own; false: OpenAI's completions
    const char* load;     ///< pages for adapters
    const char* unload;
    const char* update;  ///< page for whole weights; null: it takes none
};

inline constexpr std::array kRolloutDialects{
    RolloutDialect{RolloutProtocol::distilld, "/v1/completions", false, "/v1/load_lora_adapter",
                   "/v1/unload_lora_adapter", "/update_weights_from_disk"},
    RolloutDialect{RolloutProtocol::vllm, "/v1/completions", false, "/v1/load_lora_adapter", "/v1/unload_lora_adapter",
                   nullptr},
    RolloutDialect{RolloutProtocol::sglang, "/generate", true, "/load_lora_adapter", "/unload_lora_adapter",
                   "/update_weights_from_disk"},
};

[[nodiscard]] inline const RolloutDialect& dialect_of(RolloutProtocol protocol) {
    return *std::ranges::find(kRolloutDialects, protocol, &RolloutDialect::protocol);
}

/// How such servers are told to take adapters.
inline constexpr const char* kHowServersTakeAdapters =
    "distilld teacher --max-adapters; vllm serve --enable-lora --max-loras, with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1; "
    "sglang.launch_server --enable-lora --max-loras-per-batch --max-lora-rank --lora-target-modules";

[[nodiscard]] constexpr const char* to_string(TeacherProtocol protocol) noexcept {
    return name_of(kTeacherProtocolNames, protocol);
}

}  // namespace distilld
