#include "pipeline/teacher/answer_decoding.hpp"

#include <cstddef>
#include <utility>

#include "pipeline/core/target_rows.hpp"

namespace distilld {

std::uint64_t body_bytes(const std::vector<HttpResponse>& responses) {
    std::uint64_t bytes = 0;
    for (const HttpResponse& response : responses) {
        bytes += response.body ? response.body->size() : 0;
    }
    return bytes;
}

Result<EndpointAnswer> decode_answer(const TeacherCodec& codec, const TokenBatch& tokens, std::uint32_t vocabulary,
                                     const std::vector<RequestPart>& parts, std::vector<HttpResponse> responses) {
    const std::uint64_t wire_bytes = body_bytes(responses);
    std::vector<AnsweredPart> answered;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        auto targets = codec.decode(responses[i], tokens, parts[i]);
        if (!targets) {
            return targets.error();
        }
        responses[i].body.reset();
        answered.push_back({parts[i], std::move(*targets)});
    }
    auto joined = join_targets(tokens, std::move(answered));
    if (!joined) {
        return joined.error();
    }
    joined->wire_bytes = wire_bytes;
    if (const auto defect = find_defect(*joined, vocabulary)) {
        return teacher_error(*defect);
    }
    if (const auto missing = find_missing_row(*joined, tokens)) {
        return teacher_error(*missing);
    }
    return EndpointAnswer{std::move(*joined), std::move(responses)};
}

}  // namespace distilld
