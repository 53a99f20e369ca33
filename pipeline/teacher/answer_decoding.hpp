#pragma once

#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "pipeline/teacher/protocols/protocol.hpp"

namespace distilld {

/// Total size of the responses' bodies.
[[nodiscard]] std::uint64_t body_bytes(const std::vector<HttpResponse>& responses);

/// Number of ids; 0 = unknown.
struct AnswerVocabulary {
    std::uint32_t student = 0;  ///< top-k rows without the teacher's vocabulary must have no ids far above
    std::uint32_t logits = 0;   ///< width of rows of logits
};

/// Decodes, joins and checks the `responses` to the `parts` of one micro-batch, in the same order. A body is freed once
/// decoded, unless targets point into it. Errors do not name the endpoint. Any thread.
[[nodiscard]] FetchResult<EndpointAnswer> decode_answer(const TeacherCodec& codec, const TokenBatch& tokens,
                                                        AnswerVocabulary vocabulary,
                                                        const std::vector<RequestPart>& parts,
                                                        std::vector<HttpResponse> responses);

}  // namespace distilld
