#pragma once

#include <cstdint>
#include <string>

#include "tests/unit/pipeline/teacher/teacher_fixture.hpp"

/// Servers of a small made-up model, one for each protocol, and the ways in which real ones were found to be wrong.
namespace distilld::test {

constexpr std::uint32_t kSmallVocabulary = 40;

enum class ServerFault {
    none,
    raw_logits,       ///< under the name of log-probabilities
    low_logits,       ///< the same, all below zero: no element shows it
    half_precision,   ///< logits of bf16
    shifted_late,     ///< each row is the one after it
    shifted_early,    ///< each row is the one before it
    capped,           ///< half as many entries as were asked for, at most
    ragged,           ///< one row has an entry less
    clamped,          ///< all but two tokens are impossible, and said to have −9999
    keyed_by_text,    ///< tokens by their texts
    ignores_request,  ///< 200 and an answer to something else
    other_prompt,     ///< rows of another prompt, and they say so
};

/// How a server is spoken with, and in which form it answers.
enum class SmallServer { kserve_topk, kserve_tail, kserve_logits, seed, vllm, vllm_generate, sglang, sglang_flat, trl };

[[nodiscard]] TeacherProtocol protocol_of(SmallServer server) noexcept;
[[nodiscard]] std::string name_of(SmallServer server);

[[nodiscard]] ScriptedHttpServer::Handler small_model_server(SmallServer server, ServerFault fault);

}  // namespace distilld::test
