#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/unit/pipeline/teacher/protocols/prompt_scoring.hpp"
#include "tests/unit/pipeline/teacher/small_model_server.hpp"

// The probe refuses what real servers were found to get wrong, whatever protocol is spoken: each server with each
// fault.

namespace distilld {
namespace {

using test::kSmallVocabulary;
using test::Loop;
using test::ScriptedHttpServer;
using test::ServerFault;
using test::SmallServer;

constexpr SmallServer kAll[] = {SmallServer::kserve_topk, SmallServer::kserve_tail, SmallServer::kserve_logits,
                                SmallServer::seed,        SmallServer::vllm,        SmallServer::vllm_generate,
                                SmallServer::sglang,      SmallServer::sglang_flat, SmallServer::trl};

struct Probed {
    std::string refusal;  ///< empty: the teacher is taken
    std::vector<std::string> warnings;
    std::string url;
};

bool has_logits(SmallServer server) {
    return server == SmallServer::kserve_logits || server == SmallServer::seed;
}

/// As a job with micro-batches of `rows` × `columns` probes it.
Probed probe(SmallServer server, ServerFault fault, std::uint32_t rows = 2, std::uint32_t columns = 8,
             std::uint32_t top_k = 8) {
    ScriptedHttpServer http(test::small_model_server(server, fault));
    Loop loop;
    Probed probed;
    probed.url = http.url();
    RemoteTeacherOptions options;
    options.batch_rows = rows;
    options.batch_columns = columns;
    options.on_warning = [&](const std::string& text) { probed.warnings.push_back(text); };
    const auto spec = test::scoring_spec(test::protocol_of(server), http.url(), has_logits(server) ? 0 : top_k);
    const auto teacher = loop.teacher(spec, options).value();
    const auto info = loop.run(teacher->probe(kSmallVocabulary));
    if (!info) {
        probed.refusal = info.error().message;
    }
    return probed;
}

void expect_refused(SmallServer server, ServerFault fault, const std::string& words, std::uint32_t rows = 2) {
    const Probed probed = probe(server, fault, rows);
    EXPECT_NE(probed.refusal.find(words), std::string::npos) << test::name_of(server) << ": " << probed.refusal;
    EXPECT_NE(probed.refusal.find(probed.url), std::string::npos) << test::name_of(server) << ": " << probed.refusal;
}

TEST(ProbeRefusals, AServerThatIsRightIsTaken) {
    for (const SmallServer server : kAll) {
        for (const std::uint32_t rows : {1U, 2U, 5U}) {
            const Probed probed = probe(server, ServerFault::none, rows);
            EXPECT_EQ(probed.refusal, "") << test::name_of(server);
            EXPECT_TRUE(probed.warnings.empty()) << test::name_of(server) << ": " << probed.warnings.front();
        }
    }
}

TEST(ProbeRefusals, RawLogitsUnderTheNameOfLogProbabilities) {
    for (const SmallServer server : kAll) {
        if (!has_logits(server)) {
            expect_refused(server, ServerFault::raw_logits, "not a log-probability");
            expect_refused(server, ServerFault::low_logits, "no other can have more than");
        }
    }
}

TEST(ProbeRefusals, Bf16ServedForFp32IsReportedAndTaken) {
    for (const SmallServer server : kAll) {
        const Probed probed = probe(server, ServerFault::half_precision);
        EXPECT_EQ(probed.refusal, "") << test::name_of(server);
        ASSERT_EQ(probed.warnings.size(), 1U) << test::name_of(server);
        EXPECT_NE(probed.warnings[0].find("bf16 or fp16"), std::string::npos) << probed.warnings[0];
    }
}

// With one sequence a micro-batch two are asked for all the same: one shows nothing.
TEST(ProbeRefusals, RowsThatAreShiftedByOne) {
    for (const SmallServer server : kAll) {
        for (const std::uint32_t rows : {1U, 2U, 5U}) {
            expect_refused(server, ServerFault::shifted_late, "position 0 changes with the token after it", rows);
            expect_refused(server, ServerFault::shifted_early, "position 1 does not change with its own token", rows);
        }
    }
}

TEST(ProbeRefusals, RowsOfAnotherPrompt) {
    for (const SmallServer server : {SmallServer::vllm, SmallServer::vllm_generate, SmallServer::trl,
                                     SmallServer::sglang, SmallServer::sglang_flat}) {
        expect_refused(server, ServerFault::other_prompt,
                       test::protocol_of(server) == TeacherProtocol::sglang ? "is not of the prompt"
                                                                            : "do not belong to this prompt");
    }
}

TEST(ProbeRefusals, RowsKeyedByText) {
    expect_refused(SmallServer::vllm, ServerFault::keyed_by_text, "names a token by its text");
    expect_refused(SmallServer::vllm_generate, ServerFault::keyed_by_text, "names a token by its text");
}

TEST(ProbeRefusals, FewerEntriesThanWanted) {
    for (const SmallServer server : kAll) {
        if (!has_logits(server)) {
            const bool kserve = test::protocol_of(server) == TeacherProtocol::kserve;
            expect_refused(server, ServerFault::capped, kserve ? "/teacher/top_k: 8 entries" : "were asked for");
        }
    }
    // As many as there are tokens is all there is.
    EXPECT_EQ(probe(SmallServer::kserve_topk, ServerFault::none, 2, 8, 100).refusal, "");
}

TEST(ProbeRefusals, ARowThatIsShorterThanTheOthers) {
    const std::map<SmallServer, std::string> words{
        {SmallServer::seed, "does not have 40 logits like the first row"},
        {SmallServer::vllm, "7 log-probabilities, 8 were asked for"},
        {SmallServer::vllm_generate, "7 log-probabilities, 8 were asked for"},
        {SmallServer::sglang, "7 log-probabilities, 8 were asked for"},
        {SmallServer::sglang_flat, "8 for each of 3 tokens but the first"},
        {SmallServer::trl, "7 log-probabilities, 8 were asked for"},
    };
    for (const auto& [server, text] : words) {
        expect_refused(server, ServerFault::ragged, text);
    }
}

TEST(ProbeRefusals, AServerThatPassesOverTheRequest) {
    const std::map<SmallServer, std::string> words{
        {SmallServer::kserve_topk, "no output 'topk_ids'"},
        {SmallServer::kserve_tail, "no output 'topk_ids'"},
        {SmallServer::kserve_logits, "no output 'logits'"},
        {SmallServer::seed, "no 'logits'"},
        {SmallServer::vllm, "ignored"},
        {SmallServer::vllm_generate, "ignored"},
        {SmallServer::sglang, "ignored"},
        {SmallServer::sglang_flat, "ignored"},
        {SmallServer::trl, "ignored"},
    };
    for (const SmallServer server : kAll) {
        expect_refused(server, ServerFault::ignores_request, words.at(server));
    }
}

// vLLM and SGLang write −9999 where a probability is zero: those are rows like others.
TEST(ProbeRefusals, ClampedLogProbabilitiesAreTaken) {
    for (const SmallServer server : kAll) {
        if (!has_logits(server)) {
            const Probed probed = probe(server, ServerFault::clamped);
            EXPECT_EQ(probed.refusal, "") << test::name_of(server);
        }
    }
}

// A k above the vocabulary or an id that is none ends an SGLang process.
TEST(ProbeRefusals, WhatEndsAnSglangProcessIsNeverSent) {
    for (const std::uint32_t top_k : {1U, 8U, kSmallVocabulary, kSmallVocabulary + 1, 1000000U}) {
        const Probed probed = probe(SmallServer::sglang, ServerFault::none, 2, 8, top_k);
        EXPECT_EQ(probed.refusal, "") << top_k;
    }
    ScriptedHttpServer http(test::small_model_server(SmallServer::sglang, ServerFault::none));
    Loop loop;
    const auto teacher = loop.teacher(test::scoring_spec(TeacherProtocol::sglang, http.url(), 8)).value();
    ASSERT_TRUE(loop.run(teacher->probe(kSmallVocabulary)));
    const std::size_t before = http.requests().size();
    for (const std::int32_t id : {-1, std::int32_t{kSmallVocabulary}, 1000000}) {
        const auto refused = loop.fetch(*teacher, 0, test::batch_of_prompts({{1, id, 2}}), std::chrono::seconds(20));
        ASSERT_FALSE(refused);
        EXPECT_EQ(refused.error().kind, FailureKind::rejected);
        EXPECT_NE(refused.error().message.find("token id " + std::to_string(id)), std::string::npos)
            << refused.error().message;
    }
    EXPECT_EQ(http.requests().size(), before);
}

}  // namespace
}  // namespace distilld
