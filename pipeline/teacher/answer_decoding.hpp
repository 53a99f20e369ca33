#pragma once

#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "pipeline/teacher/protocols/protocol.hpp"

namespace distilld {

/// Bodies of the responses together.
[[nodiscard]] std::uint64_t body_bytes(const std::vector<HttpResponse>& responses);

/// The targets of one micro-batch from `responses` to its `parts`, in the same order: decoded, joined and checked (ids
/// below `vocabulary`, 0 = not checked). A body is let go of as soon as it is decoded, unless targets point into it.
/// Errors are of ErrorKind::teacher. Any thread.
[[nodiscard]] Result<EndpointAnswer> decode_answer(const TeacherCodec& codec, const TokenBatch& tokens,
                                                   std::uint32_t vocabulary, const std::vector<RequestPart>& parts,
                                                   std::vector<HttpResponse> responses);

}  // namespace distilld
