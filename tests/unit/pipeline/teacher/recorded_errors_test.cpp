#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/value_to.hpp>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/pipeline/teacher/protocols/prompt_scoring.hpp"

// Everything that real servers were recorded to answer when they refused, failed, closed the connection, or passed over
// what was asked: tests/fixtures/teachers/errors.json has the answers, and what a person would quote of each.

namespace distilld {
namespace {

namespace json = boost::json;
using namespace std::chrono_literals;
using test::Loop;
using test::ScriptedHttpServer;
using test::ScriptedReply;
using test::SeenRequest;

struct Recording {
    std::string name;
    unsigned status = 0;  ///< 0: the connection was closed without an answer
    std::string body;
    std::string reason;  ///< of the server; what is longer than messages are is cut
};

std::vector<Recording> recordings() {
    std::vector<Recording> all;
    const json::value recorded = json::parse(test::read_fixture("errors.json"));
    for (const json::value& entry : recorded.as_array()) {
        Recording one;
        one.name = json::value_to<std::string>(entry.at("name"));
        one.status = entry.at("status").to_number<unsigned>();
        one.body = json::value_to<std::string>(entry.at("body"));
        if (const auto* reason = entry.as_object().if_contains("reason")) {
            one.reason = json::value_to<std::string>(*reason);
        }
        std::replace(one.reason.begin(), one.reason.end(), '\n', ' ');
        one.reason = one.reason.substr(0, 290);
        one.reason.erase(one.reason.find_last_not_of(' ') + 1);
        all.push_back(std::move(one));
    }
    return all;
}

/// The protocol that is spoken with such a server.
TeacherProtocol protocol_of(const std::string& name) {
    if (name.starts_with("sglang-") && name.find("prompt_logprobs") == std::string::npos &&
        name.find("unknown-model") == std::string::npos && name.find("-v1-") == std::string::npos) {
        return TeacherProtocol::sglang;
    }
    if (name.starts_with("vllm-generate") || name.starts_with("vllm-err-generate")) {
        return TeacherProtocol::vllm_generate;
    }
    const bool kserve = name.starts_with("kserve-") || name.starts_with("triton-") || name.starts_with("mlserver-") ||
                        name.starts_with("pytriton-");
    return kserve ? TeacherProtocol::kserve : TeacherProtocol::vllm;
}

ScriptedHttpServer::Handler replay(const Recording& recording) {
    return [recording](const SeenRequest&) {
        ScriptedReply reply;
        reply.reset = recording.status == 0;
        reply.status = recording.status;
        reply.body = recording.body;
        return reply;
    };
}

/// What becomes of a request that is answered so: the request's fault is not asked again, an outage is waited out, a
/// fault of the server is tried again a few times.
FailureKind kind_of(unsigned status) {
    switch (status) {
        case 0:
            return FailureKind::connection;
        case 404:
            return FailureKind::not_found;
        case 500:
            return FailureKind::server_error;
        default:
            return FailureKind::rejected;  // 400, 401, 405, 422, and 501: it never will
    }
}

FetchResult<TeacherTargets> fetch_from(const ScriptedHttpServer& server, const Recording& recording) {
    Loop loop;
    const auto teacher = loop.teacher(test::scoring_spec(protocol_of(recording.name), server.url(), 5)).value();
    const bool kserve = protocol_of(recording.name) == TeacherProtocol::kserve;
    auto batch = kserve ? test::recorded_batch() : test::batch_of_prompts(test::recorded_prompts(1));
    return loop.fetch(*teacher, 0, std::move(batch), 20s);
}

TEST(RecordedErrors, EachIsNamedInTheServersWordsAndOfItsKind) {
    std::map<unsigned, int> seen;
    for (const Recording& recording : recordings()) {
        if (recording.status == 200) {
            continue;
        }
        ++seen[recording.status];
        ScriptedHttpServer server(replay(recording));
        const auto answer = fetch_from(server, recording);
        ASSERT_FALSE(answer) << recording.name;
        const FetchError& error = answer.error();
        EXPECT_EQ(error.kind, kind_of(recording.status)) << recording.name << ": " << error.message;
        EXPECT_TRUE(error.message.starts_with(server.url())) << recording.name << ": " << error.message;
        EXPECT_NE(error.message.find(recording.reason), std::string::npos) << recording.name << ": " << error.message;
        if (recording.status != 0) {
            EXPECT_FALSE(recording.reason.empty()) << recording.name;
            EXPECT_NE(error.message.find("HTTP " + std::to_string(recording.status) + ": "), std::string::npos)
                << error.message;
        }
        if (recording.status == 401) {
            EXPECT_NE(error.message.find("/teacher/api_key_env"), std::string::npos) << error.message;
        }
    }
    EXPECT_EQ(seen, (std::map<unsigned, int>{
                        {0, 2}, {400, 49}, {401, 2}, {404, 14}, {405, 5}, {422, 7}, {500, 17}, {501, 1}}));
}

// The probe meets the same servers first: whatever it asked, it ends with the server's words and the endpoint.
TEST(RecordedErrors, TheProbeSaysThemToo) {
    int probed = 0;
    for (const Recording& recording : recordings()) {
        if (recording.status == 200) {
            continue;
        }
        ScriptedHttpServer server(replay(recording));
        Loop loop;
        RemoteTeacherOptions hasty;
        hasty.start_deadline = 0ms;
        const auto teacher =
            loop.teacher(test::scoring_spec(protocol_of(recording.name), server.url(), 5), hasty).value();
        const auto info = loop.run(teacher->probe(512));
        ASSERT_FALSE(info) << recording.name;
        EXPECT_NE(info.error().message.find(server.url()), std::string::npos) << info.error().message;
        EXPECT_NE(info.error().message.find(recording.reason), std::string::npos)
            << recording.name << ": " << info.error().message;
        ++probed;
    }
    EXPECT_EQ(probed, 97);
}

// What was asked is not in an answer of 200: the server did not know the field.
TEST(RecordedErrors, AServerThatPassesOverWhatWasAskedIsNamed) {
    const std::map<std::string, std::string> words{
        {"lcp-echo-logprobs5-shifted", "no 'prompt_logprobs': the server ignored"},
        {"llama-echo-ignored", "no 'prompt_logprobs': the server ignored"},
        {"llama-prompt_logprobs-ignored", "no 'prompt_logprobs': the server ignored"},
        {"mlserver-binary-out-ignored",
         "no output 'topk_logprobs'"},  // of two outputs it was asked for one, and in JSON
        {"mlserver-err-unknown-output", "no output 'topk_ids'"},
        {"sglang-kneg-ignored", "'input_top_logprobs'"},
        {"sglang-prompt_logprobs-ignored", "no 'prompt_logprobs': the server ignored"},
        {"sglang-unknown-model-accepted", "no 'prompt_logprobs': the server ignored"},
        {"tfserve-logprobs-ignored", "no 'prompt_logprobs': the server ignored"},
        {"vllm-err-noauth-health", "JSON"},
        {"vllm-err-noauth-tokenize", "'choices' is not an array"},
    };
    std::size_t refused = 0;
    for (const Recording& recording : recordings()) {
        if (recording.status != 200) {
            continue;
        }
        ScriptedHttpServer server(replay(recording));
        const auto answer = fetch_from(server, recording);
        ASSERT_FALSE(answer) << recording.name;
        EXPECT_EQ(answer.error().kind, FailureKind::bad_response) << recording.name;
        EXPECT_TRUE(answer.error().message.starts_with(server.url())) << answer.error().message;
        ASSERT_TRUE(words.contains(recording.name)) << recording.name << ": " << answer.error().message;
        EXPECT_NE(answer.error().message.find(words.at(recording.name)), std::string::npos)
            << recording.name << ": " << answer.error().message;
        ++refused;
    }
    EXPECT_EQ(refused, words.size());
}

}  // namespace
}  // namespace distilld
