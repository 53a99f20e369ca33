#pragma once

#include "pipeline/teacher/protocols/protocol.hpp"

namespace distilld {

/// SGLang's `POST /generate` with token ids in and `return_logprob`: rows in base64 where the server knows that form
/// (2026), else as nested arrays. SGLang tells no vocabulary, and a k or an id above it ends its process, so the
/// student's vocabulary must not be larger than the teacher's.
[[nodiscard]] Result<std::unique_ptr<TeacherProtocolAdapter>> make_sglang_protocol_adapter(
    const ProtocolSettings& settings);

}  // namespace distilld
