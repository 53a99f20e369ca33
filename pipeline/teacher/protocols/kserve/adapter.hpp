#pragma once

#include <memory>
#include <string>

#include "pipeline/teacher/protocols/protocol.hpp"

namespace distilld::kserve {

/// A KServe v2 teacher (Open Inference Protocol). Negotiation: readiness, the model's metadata, Triton's configuration
/// of it where there is such a page, then a first answer, with the binary tensor data extension or, where the server
/// refuses that, with JSON tensors. Fails on a URL whose path does not end in /v2/models/NAME[/versions/V]/infer.
[[nodiscard]] Result<std::unique_ptr<TeacherProtocolAdapter>> make_protocol_adapter(const ProtocolSettings& settings);

/// …/v2/models/NAME[/versions/V] with the /infer that goes without saying; any other path as it is.
[[nodiscard]] std::string complete_path(std::string path);

}  // namespace distilld::kserve
