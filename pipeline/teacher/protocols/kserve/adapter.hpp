#pragma once

#include <memory>
#include <string>

#include "pipeline/teacher/protocols/protocol.hpp"

namespace distilld::kserve {

/// A KServe v2 teacher (Open Inference Protocol). Negotiation: readiness, the model's metadata, Triton's configuration
/// of it if that page exists, then a first answer, with the binary tensor data extension or, if the server refuses it,
/// with JSON tensors. Fails on a URL whose path does not end in /v2/models/NAME[/versions/V]/infer.
[[nodiscard]] Result<std::unique_ptr<TeacherProtocolAdapter>> make_protocol_adapter(const ProtocolSettings& settings);

/// Appends the omitted /infer to …/v2/models/NAME[/versions/V]; returns any other path unchanged.
[[nodiscard]] std::string complete_path(std::string path);

}  // namespace distilld::kserve
