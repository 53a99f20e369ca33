#include "pipeline/teacher/answer_decoding.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "pipeline/core/target_rows.hpp"
#include "pipeline/core/vocabulary_fit.hpp"

namespace distilld {

std::uint64_t body_bytes(const std::vector<HttpResponse>& responses) {
    std::uint64_t bytes = 0;
    for (const HttpResponse& response : responses) {
        bytes += response.body ? response.body->size() : 0;
    }
    return bytes;
}

namespace {

FetchError unreadable(const Error& error) {
    return {FailureKind::bad_response, error.message, std::nullopt};
}

std::optional<std::string> defect_of(const TeacherTargets& answer, const TokenBatch& tokens,
                                     AnswerVocabulary vocabulary) {
    const std::uint64_t told = std::min<std::uint64_t>(answer.vocabulary, std::numeric_limits<std::int32_t>::max());
    const std::uint64_t student = vocabulary.student;
    const std::uint64_t padding = told == 0 ? max_padding(student) : std::max(told, student) - student;
    const bool logits = answer.kind == TeacherTargets::Kind::logits;
    auto defect = find_defect(answer, logits ? vocabulary.logits : vocabulary.student, padding);
    return defect ? defect : find_missing_row(answer, tokens);
}

}  // namespace

FetchResult<EndpointAnswer> decode_answer(const TeacherCodec& codec, const TokenBatch& tokens,
                                          AnswerVocabulary vocabulary, const std::vector<RequestPart>& parts,
                                          std::vector<HttpResponse> responses) {
    const std::uint64_t wire_bytes = body_bytes(responses);
    std::vector<AnsweredPart> answered;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        auto targets = codec.decode(responses[i], tokens, parts[i]);
        if (!targets) {
            return unreadable(targets.error());
        }
        responses[i].body.reset();
        answered.push_back({parts[i], std::move(*targets)});
    }
    auto joined = join_targets(tokens, std::move(answered));
    if (!joined) {
        return unreadable(joined.error());
    }
    joined->wire_bytes = wire_bytes;
    if (auto defect = defect_of(*joined, tokens, vocabulary)) {
        return FetchError{FailureKind::bad_response, std::move(*defect), std::nullopt, true};
    }
    return EndpointAnswer{std::move(*joined), std::move(responses)};
}

}  // namespace distilld
