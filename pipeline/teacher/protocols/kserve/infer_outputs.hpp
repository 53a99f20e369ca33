#pragma once

#include <cstdint>
#include <string_view>

#include "base/error.hpp"
#include "pipeline/core/micro_batch.hpp"
#include "pipeline/teacher/protocols/kserve/message.hpp"
#include "pipeline/teacher/request_parts.hpp"

namespace distilld::kserve {

/// Targets of a part from the outputs topk_ids, topk_logprobs and, if present, tail_logprob. They are views of the
/// message's tensors if the datatypes allow it; the result keeps the tensors alive. Errors name the output.
[[nodiscard]] Result<TeacherTargets> read_topk(const InferResponse& message, const RequestPart& part);

/// The same from one output: logits [B, T, V] or hidden states [B, T, H], according to `kind`.
[[nodiscard]] Result<TeacherTargets> read_floats(const InferResponse& message, std::string_view output,
                                                 TeacherTargets::Kind kind, const RequestPart& part);

/// Memory per element of an output in the targets, if its datatype is as in the metadata.
[[nodiscard]] std::uint64_t held_element_bytes(std::string_view datatype) noexcept;

}  // namespace distilld::kserve
