#pragma once

#include "pipeline/teacher/protocols/protocol.hpp"

namespace distilld {

/// The seed's JSON: {"input_ids":[[…]],"return_logits":true} answered by {"logits":[B][T][V]}
/// (architehc/nanochat-rs-ternary, crates/nanochat-train/src/distill.rs).
[[nodiscard]] Result<std::unique_ptr<TeacherProtocolAdapter>> make_seed_protocol_adapter(
    const ProtocolSettings& settings);

}  // namespace distilld
