#include <gtest/gtest.h>

#include "tests/unit/pipeline/teacher/protocols/prompt_scoring.hpp"

namespace distilld {
namespace {

using namespace std::chrono_literals;
using test::Loop;
using test::read_fixture;
using test::ScriptedHttpServer;
using test::ScriptedReply;
using test::SeenRequest;

TeacherSpec automatic_spec(const std::string& url) {
    return test::scoring_spec(TeacherProtocol::automatic, url, 4);
}

ScriptedReply with(unsigned status, std::string body) {
    ScriptedReply reply;
    reply.status = status;
    reply.body = std::move(body);
    return reply;
}

/// A server whose pages are these and nothing else; POSTs get 418, so that a test sees which path was asked.
ScriptedHttpServer::Handler pages(std::map<std::string, std::string> bodies) {
    return [bodies = std::move(bodies)](const SeenRequest& request) {
        const auto page = bodies.find(request.target);
        if (page != bodies.end()) {
            return with(200, page->second);
        }
        return with(request.method == "GET" ? 404 : 418, R"({"detail":"Not Found"})");
    };
}

/// The first that asks for anything.
std::string first_post(const ScriptedHttpServer& server) {
    for (const auto& request : server.requests()) {
        if (request.method == "POST" && request.body != "{}") {
            return request.target;
        }
    }
    return {};
}

/// Where the probe asks for rows.
std::string asked_for_rows(ScriptedHttpServer::Handler handler, const std::string& path) {
    ScriptedHttpServer server(std::move(handler));
    Loop loop;
    const auto teacher = loop.teacher(automatic_spec(server.url(path))).value();
    EXPECT_FALSE(loop.run(teacher->probe(512)));
    return first_post(server);
}

TEST(AutomaticProtocol, KnowsServersByTheirPages) {
    const auto vllm = pages({{"/v1/models", read_fixture("vllm-models.json")}});
    const auto sglang = pages({{"/v1/models", read_fixture("sglang-models.json")}});
    for (const char* path : {"", "/", "/v1", "/v1/", "/v1/completions", "/generate", "/get_sequence_logprobs/"}) {
        EXPECT_EQ(asked_for_rows(vllm, path), "/v1/completions") << path;
        EXPECT_EQ(asked_for_rows(sglang, path), "/generate") << path;
        EXPECT_EQ(asked_for_rows(pages({}), path), "/v1/completions") << path;  // the seeds' own
    }
    const auto below = pages({{"/gateway/v1/models", read_fixture("vllm-models.json")}});
    EXPECT_EQ(asked_for_rows(below, "/gateway"), "/gateway/v1/completions");
}

TEST(AutomaticProtocol, TakesVllmsCheaperRouteWhereItIsThere) {
    const auto there = pages({{"/gateway/v1/models", read_fixture("vllm-models.json")}});
    const auto complains = [&](const SeenRequest& request) {
        return request.body == "{}" && request.target == "/gateway/inference/v1/generate"
                   ? with(400, R"({"error":{"message":"1 validation error: Field required"}})")
                   : there(request);
    };
    for (const char* path : {"/gateway", "/gateway/v1", "/gateway/v1/completions"}) {
        EXPECT_EQ(asked_for_rows(complains, path), "/gateway/inference/v1/generate") << path;
        EXPECT_EQ(asked_for_rows(there, path), "/gateway/v1/completions") << path;
    }
}

TEST(AutomaticProtocol, SpeaksToOurOwnTeacherAndSaysSo) {
    const auto own = test::own_teacher(test::own_topk_reply);
    for (const char* path : {"", "/v2/models/teacher/infer", "/v2/models/teacher"}) {
        ScriptedHttpServer server([&](const SeenRequest& request) {
            return request.target == "/v2" ? with(200, R"({"name":"distilld","version":"1","extensions":[]})")
                                           : own(request);
        });
        Loop loop;
        const auto teacher = loop.teacher(automatic_spec(server.url(path))).value();
        const auto info = loop.run(teacher->probe(512)).value();
        EXPECT_EQ(info.top_k, 4U);
        EXPECT_TRUE(loop.fetch(*teacher, 0, test::make_batch(2, 3), 20s)) << path;
        EXPECT_EQ(first_post(server), "/v2/models/teacher/infer") << path;
    }
}

TEST(AutomaticProtocol, NamesWhatIsNotSpoken) {
    const auto refusal = [](const std::string& models) {
        ScriptedHttpServer server(pages({{"/v1/models", models}}));
        Loop loop;
        const auto teacher = loop.teacher(automatic_spec(server.url())).value();
        const auto info = loop.run(teacher->probe(512));
        EXPECT_TRUE(first_post(server).empty());
        return info ? std::string() : info.error().message;
    };
    EXPECT_NE(refusal(read_fixture("llama-models.json")).find("a llama.cpp server"), std::string::npos);
    const std::string other = refusal(R"({"data":[{"id":"gpt","owned_by":"openai"}]})");
    EXPECT_NE(other.find("an OpenAI-style server"), std::string::npos) << other;
    EXPECT_NE(other.find("'gpt'"), std::string::npos) << other;
}

TEST(AutomaticProtocol, AWrongKeyIsSaid) {
    ScriptedHttpServer server([](const SeenRequest&) { return with(401, read_fixture("vllm-err-noauth.json")); });
    Loop loop;
    const auto teacher = loop.teacher(automatic_spec(server.url())).value();
    const auto info = loop.run(teacher->probe(512));
    ASSERT_FALSE(info);
    EXPECT_NE(info.error().message.find("/teacher/api_key_env"), std::string::npos) << info.error().message;
}

}  // namespace
}  // namespace distilld
