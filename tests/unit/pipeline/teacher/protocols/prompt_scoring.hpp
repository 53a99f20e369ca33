#pragma once

#include <openssl/evp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/pipeline/teacher/teacher_fixture.hpp"

/// What the tests of the protocols share that score prompts (vLLM, SGLang).
namespace distilld::test {

/// The batch whose prompts are these: the last token of each is the label of the last position. All of one length.
[[nodiscard]] std::shared_ptr<const TokenBatch> batch_of_prompts(const std::vector<std::vector<std::int32_t>>& prompts);

/// The prompts that the recordings answer (tests/fixtures/teachers/reference.json), by their place there.
[[nodiscard]] std::vector<std::vector<std::int32_t>> recorded_prompts(std::size_t count);

/// The prompts of a request: `member` is an array of ids, or of arrays of ids.
[[nodiscard]] std::vector<std::vector<std::int32_t>> prompts_in(const SeenRequest& request, const char* member);

/// Top-k rows of the first prompts are those of the reference: the same ids in the same order, log-probabilities of a
/// float64 log-softmax within 1e-4.
void expect_reference(const TeacherTargets& targets, std::size_t prompts);

[[nodiscard]] TeacherSpec scoring_spec(TeacherProtocol protocol, const std::string& url, std::uint32_t top_k);

/// A server with a page /v1/models, which is `models`, and an answer for everything else.
[[nodiscard]] ScriptedHttpServer::Handler listing_server(std::string models, ScriptedHttpServer::Handler answer);

/// The bytes of the elements, as base64.
template <class Element>
[[nodiscard]] std::string base64(const std::vector<Element>& elements) {
    const std::size_t size = elements.size() * sizeof(Element);
    std::string text((size + 2) / 3 * 4 + 1, '\0');
    const int written =
        EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                        reinterpret_cast<const unsigned char*>(elements.data()), static_cast<int>(size));
    text.resize(static_cast<std::size_t>(written));
    return text;
}

/// A fetch of `tokens` that fails with a bad_response; its message.
[[nodiscard]] std::string refused(TeacherProtocol protocol, const std::string& body,
                                  std::shared_ptr<const TokenBatch> tokens, std::uint32_t top_k);

struct RefusedAnswer {
    std::string body;
    const char* words;  ///< of the message
};

/// Each is refused with its words, as the answer to `tokens`.
void expect_refused(TeacherProtocol protocol, const std::vector<RefusedAnswer>& answers,
                    const std::shared_ptr<const TokenBatch>& tokens, std::uint32_t top_k);

/// No beginning of an answer is taken for the whole.
void expect_beginnings_refused(TeacherProtocol protocol, const std::string& answer);

}  // namespace distilld::test
