#pragma once

#include "pipeline/teacher/protocols/protocol.hpp"

namespace distilld {

/// TRL's `trl vllm-serve`: `POST /get_sequence_logprobs/` with binary rows. Asked with prompts of one token each, so
/// that there is a row for every other token: row j of a sequence is the distribution after its token j.
[[nodiscard]] Result<std::unique_ptr<TeacherProtocolAdapter>> make_trl_protocol_adapter(
    const ProtocolSettings& settings);

}  // namespace distilld
