#pragma once

#include <cstdint>
#include <vector>

#include "base/error.hpp"
#include "pipeline/teacher/protocols/protocol.hpp"

namespace distilld {

/// Bodies of the responses together.
[[nodiscard]] std::uint64_t body_bytes(const std::vector<HttpResponse>& responses);

/// How many ids there are; 0 = not known.
struct AnswerVocabulary {
    std::uint32_t student = 0;  ///< top-k rows that do not say how many the teacher knows name none far above
    std::uint32_t logits = 0;   ///< rows of logits have so many
};

/// The targets of one micro-batch from `responses` to its `parts`, in the same order: decoded, joined and checked. A
/// body is let go of as soon as it is decoded, unless targets point into it. Errors do not name the endpoint. Any
/// thread.
[[nodiscard]] FetchResult<EndpointAnswer> decode_answer(const TeacherCodec& codec, const TokenBatch& tokens,
                                                        AnswerVocabulary vocabulary,
                                                        const std::vector<RequestPart>& parts,
                                                        std::vector<HttpResponse> responses);

}  // namespace distilld
