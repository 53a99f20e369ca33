#pragma once

#include <cstdint>
#include <string_view>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/teacher/protocols/kserve/message.hpp"
#include "pipeline/teacher/request_parts.hpp"

namespace distilld::kserve {

/// Targets of a part from the outputs topk_ids, topk_logprobs and, when it is there, tail_logprob. Views of the
/// message's tensors where their datatypes allow; the result keeps those alive. Errors name the output.
[[nodiscard]] Result<TeacherTargets> read_topk(const InferResponse& message, const RequestPart& part);

/// The same from one output: logits [B, T, V] or hidden states [B, T, H], as `kind` says.
[[nodiscard]] Result<TeacherTargets> read_floats(const InferResponse& message, std::string_view output,
                                                 TeacherTargets::Kind kind, const RequestPart& part);

/// Memory that one element of an output takes as part of the targets, when its datatype is as the metadata says.
[[nodiscard]] std::uint64_t held_element_bytes(std::string_view datatype) noexcept;

}  // namespace distilld::kserve
