#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "pipeline/teacher/probe/endpoint_probe.hpp"
#include "tests/unit/pipeline/teacher/teacher_fixture.hpp"

// What the probe waits for, what it goes on without, and what it says of both.

namespace distilld {
namespace {

using namespace std::chrono_literals;
using test::kserve_spec;
using test::Loop;
using test::make_batch;
using test::own_teacher;
using test::own_topk_reply;
using test::read_fixture;
using test::ScriptedHttpServer;
using test::ScriptedReply;
using test::SeenRequest;
using test::unused_port;

ScriptedReply status_reply(unsigned status, std::string body = {}) {
    ScriptedReply reply;
    reply.status = status;
    reply.body = std::move(body);
    return reply;
}

/// What a teacher says while it is probed.
struct Heard {
    std::vector<std::string> warnings;
    std::vector<std::string> waiting;

    [[nodiscard]] RemoteTeacherOptions options() {
        RemoteTeacherOptions options;
        options.on_warning = [this](const std::string& text) { warnings.push_back(text); };
        options.on_waiting = [this](const std::string& text) { waiting.push_back(text); };
        return options;
    }
};

TEST(ProbePause, GrowsAndObeysTheServerWithinABound) {
    EXPECT_EQ(probe_pause(1, std::nullopt, 60s), 250ms);
    EXPECT_EQ(probe_pause(2, std::nullopt, 60s), 500ms);
    EXPECT_EQ(probe_pause(5, std::nullopt, 60s), 4s);
    EXPECT_EQ(probe_pause(1000, std::nullopt, 60s), 5s);
    EXPECT_EQ(probe_pause(1, 7000ms, 60s), 7s);
    EXPECT_EQ(probe_pause(1, 3600'000ms, 60s), 60s);
    EXPECT_EQ(probe_pause(5, 1ms, 60s), 4s) << "no sooner than without it";
}

TEST(TeacherPatience, AModelThatIsNotThereYetIsWaitedForAndNamedByItsOwnPage) {
    int asked = 0;
    const auto ready = own_teacher(own_topk_reply);
    ScriptedHttpServer server([&](const SeenRequest& request) {
        const bool metadata = request.target == "/v2/models/teacher";
        return metadata && ++asked <= 1 ? status_reply(404, read_fixture("kserve-err-model.json")) : ready(request);
    });
    Loop loop;
    Heard heard;
    const auto teacher = loop.teacher(kserve_spec(server.url(), 4), heard.options()).value();
    const auto info = loop.run(teacher->probe(512));
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(asked, 2);
    EXPECT_EQ(heard.waiting,
              (std::vector<std::string>{
                  server.url() + "/v2/models/teacher: HTTP 404: Model with name nope does not exist.", ""}));
    EXPECT_TRUE(heard.warnings.empty());
}

TEST(TeacherPatience, WhatAServerOfAnotherProtocolSeemsToBeIsSaid) {
    ScriptedHttpServer server([](const SeenRequest& request) {
        return request.target == "/v1/models" ? status_reply(200, read_fixture("vllm-models.json"))
                                              : status_reply(404, R"({"detail":"Not Found"})");
    });
    Loop loop;
    Heard heard;
    RemoteTeacherOptions options = heard.options();
    options.start_deadline = 300ms;
    const auto teacher = loop.teacher(kserve_spec(server.url(), 4), options).value();
    const auto probed = loop.run(teacher->probe(512));
    ASSERT_FALSE(probed);
    EXPECT_THAT(probed.error().message, ::testing::HasSubstr(" (given up: /teacher/patience_secs is over)"));
    // The patience is over, and nothing says that the wait was for something.
    EXPECT_EQ(heard.waiting,
              (std::vector<std::string>{server.url() +
                                        "/v2/models/teacher: HTTP 404: Not Found; the server seems to speak \"vllm\", "
                                        "with the models 'teacher' (/teacher/protocol is \"kserve\")"}));
    const std::vector<SeenRequest> seen = server.requests();
    const auto looks = std::count_if(seen.begin(), seen.end(),
                                     [](const SeenRequest& request) { return request.target == "/v1/models"; });
    EXPECT_EQ(looks, 1) << "once";
}

TEST(TeacherPatience, AServerOfAnotherProtocolThatRejectsIsNamed) {
    ScriptedHttpServer server([](const SeenRequest& request) {
        if (request.method == "POST") {
            return status_reply(400, R"({"error":"return_logits must be true"})");
        }
        return request.target == "/v2" ? status_reply(200, R"({"name":"distilld","version":"1","extensions":[]})")
                                       : status_reply(404, R"({"error":"there is nothing"})");
    });
    Loop loop;
    Heard heard;
    TeacherSpec spec = kserve_spec(server.url(), 4);
    spec.protocol = TeacherProtocol::vllm;
    const auto teacher = loop.teacher(spec, heard.options()).value();
    const auto info = loop.run(teacher->probe(512));
    ASSERT_FALSE(info);
    EXPECT_NE(info.error().message.find("return_logits must be true; the server seems to speak \"kserve\" "
                                        "(/teacher/protocol is \"vllm\")"),
              std::string::npos)
        << info.error().message;
}

TEST(TeacherPatience, AServerThatHasAnotherModelIsNotWaitedFor) {
    const auto ready = own_teacher(own_topk_reply);
    ScriptedHttpServer server([&](const SeenRequest& request) {
        const std::string words = R"({"error":"there is no model 'teacher': this server has 'llama'"})";
        return request.target == "/v2/models/teacher" ? status_reply(404, words) : ready(request);
    });
    Loop loop;
    Heard heard;
    const auto teacher = loop.teacher(kserve_spec(server.url(), 4), heard.options()).value();
    const auto info = loop.run(teacher->probe(512));
    ASSERT_FALSE(info);
    EXPECT_NE(info.error().message.find("this server has 'llama' (see /teacher/model)"), std::string::npos)
        << info.error().message;
    EXPECT_TRUE(heard.waiting.empty());
}

TEST(TeacherPatience, AnErrorOfTheMetadataNamesItsPage) {
    for (const unsigned status : {404U, 401U}) {
        const auto ready = own_teacher(own_topk_reply);
        ScriptedHttpServer server([&](const SeenRequest& request) {
            return request.target == "/v2/models/teacher" ? status_reply(status) : ready(request);
        });
        Loop loop;
        RemoteTeacherOptions options;
        options.start_deadline = 0ms;
        const auto teacher = loop.teacher(kserve_spec(server.url(), 4), options).value();
        const auto refused = loop.run(teacher->probe(512));
        ASSERT_FALSE(refused);
        const std::string& message = refused.error().message;
        EXPECT_NE(message.find(server.url() + "/v2/models/teacher: HTTP "), std::string::npos) << message;
        EXPECT_EQ(message.find("/infer"), std::string::npos) << message;
    }
}

TEST(TeacherPatience, AnEndpointThatRefusesIsLeftOutWithAWarningAndJoinsOnceItIsMended) {
    ScriptedHttpServer good(own_teacher(own_topk_reply));
    bool mended = false;
    const auto ready = own_teacher(own_topk_reply);
    ScriptedHttpServer bad(
        [&](const SeenRequest& request) { return mended ? ready(request) : status_reply(401, "who are you"); });
    Loop loop;
    Heard heard;
    auto spec = kserve_spec(bad.url(), 4);
    spec.endpoints.push_back(good.url());
    const auto teacher = loop.teacher(spec, heard.options()).value();
    const auto info = loop.run(teacher->probe(512));
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(info->refused, std::vector<std::size_t>{0});
    EXPECT_TRUE(info->absent.empty());
    EXPECT_NE(info->description.find("1 left out"), std::string::npos) << info->description;
    ASSERT_EQ(heard.warnings.size(), 1U);
    EXPECT_NE(heard.warnings[0].find(bad.url()), std::string::npos) << heard.warnings[0];
    EXPECT_NE(heard.warnings[0].find("HTTP 401: who are you"), std::string::npos) << heard.warnings[0];
    EXPECT_NE(heard.warnings[0].find("without this endpoint"), std::string::npos) << heard.warnings[0];

    const auto refused = loop.fetch(*teacher, 0, make_batch(2, 3), 20s);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, FailureKind::bad_response) << "a refusal of one does not end the job";
    EXPECT_TRUE(loop.fetch(*teacher, 1, make_batch(2, 3), 20s));
    mended = true;
    EXPECT_TRUE(loop.fetch(*teacher, 0, make_batch(2, 3), 20s));
}

TEST(TeacherPatience, AnEndpointOfOtherRowsIsLeftOut) {
    ScriptedHttpServer good(own_teacher(own_topk_reply));
    ScriptedHttpServer wide(own_teacher([](const SeenRequest& request) {
        SeenRequest more = request;
        const auto at = more.body.find("\"top_k\":4");
        if (at != std::string::npos) {
            more.body.replace(at, 9, "\"top_k\":5");
        }
        return own_topk_reply(more);
    }));
    Loop loop;
    Heard heard;
    auto spec = kserve_spec(good.url(), 4);
    spec.endpoints.push_back(wide.url());
    RemoteTeacherOptions options = heard.options();
    const auto teacher = loop.teacher(spec, options).value();
    const auto info = loop.run(teacher->probe(512));
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(info->refused, std::vector<std::size_t>{1});
    ASSERT_EQ(heard.warnings.size(), 1U);
    EXPECT_NE(heard.warnings[0].find("rows of 5 values, not of 4"), std::string::npos) << heard.warnings[0];
}

TEST(TeacherPatience, ARefusalOfOneDoesNotEndTheWaitForTheOthers) {
    ScriptedHttpServer refuses([](const SeenRequest&) { return status_reply(403); });
    int asked = 0;
    const auto ready = own_teacher(own_topk_reply);
    ScriptedHttpServer late(
        [&](const SeenRequest& request) { return ++asked == 1 ? status_reply(503) : ready(request); });
    Loop loop;
    Heard heard;
    auto spec = kserve_spec(refuses.url(), 4);
    spec.endpoints.push_back(late.url());
    const auto teacher = loop.teacher(spec, heard.options()).value();
    const auto info = loop.run(teacher->probe(512));
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_EQ(info->refused, std::vector<std::size_t>{0});
    ASSERT_EQ(heard.waiting.size(), 2U);
    EXPECT_EQ(heard.waiting[1], "") << "the wait is over";
    EXPECT_EQ(heard.waiting[0].find(refuses.url()), std::string::npos) << heard.waiting[0];
    EXPECT_NE(heard.waiting[0].find(late.url()), std::string::npos) << heard.waiting[0];
}

TEST(TeacherPatience, WhoNeverComesUpIsNamedWithAllThatWasWaitedFor) {
    const std::string first = "http://127.0.0.1:" + std::to_string(unused_port());
    ScriptedHttpServer loading([](const SeenRequest&) { return status_reply(503, "loading"); });
    Loop loop;
    auto spec = kserve_spec(first, 4);
    spec.endpoints.push_back(loading.url());
    std::string last;
    // On a busy machine the one that is loading takes longer to say so.
    for (auto deadline = 50ms; last.find("HTTP 503: loading") == std::string::npos && deadline < 30s; deadline *= 2) {
        Heard heard;
        RemoteTeacherOptions options = heard.options();
        options.start_deadline = deadline;
        const auto teacher = loop.teacher(spec, options).value();
        const auto info = loop.run(teacher->probe(512));
        ASSERT_FALSE(info);
        EXPECT_NE(info.error().message.find(first), std::string::npos) << info.error().message;
        ASSERT_FALSE(heard.waiting.empty());
        last = heard.waiting.back();
    }
    EXPECT_NE(last.find(first), std::string::npos) << last;
    EXPECT_NE(last.find("HTTP 503: loading"), std::string::npos) << last;
}

}  // namespace
}  // namespace distilld
