#pragma once

#include <memory>

#include "pipeline/teacher/protocols/protocol.hpp"

namespace distilld::kserve {

/// A KServe v2 teacher (Open Inference Protocol). Negotiation: readiness, the model's metadata, then a first answer,
/// with the binary tensor data extension or, where the server refuses that, with JSON tensors. Fails on a URL whose
/// path does not end in /v2/models/NAME[/versions/V]/infer.
[[nodiscard]] Result<std::unique_ptr<TeacherProtocolAdapter>> make_protocol_adapter(const ProtocolSettings& settings);

}  // namespace distilld::kserve
