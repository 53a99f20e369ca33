#include <gtest/gtest.h>

#include <cmath>

#include "pipeline/core/target_rows.hpp"
#include "tests/unit/pipeline/teacher/teacher_fixture.hpp"

namespace distilld {
namespace {

using namespace std::chrono_literals;
using test::floats_of;
using test::Loop;
using test::ScriptedHttpServer;
using test::ScriptedReply;
using test::SeenRequest;

TeacherSpec seed_spec(const ScriptedHttpServer& server, std::uint32_t top_k) {
    TeacherSpec spec;
    spec.endpoints = {server.url()};
    spec.protocol = TeacherProtocol::seed;
    spec.top_k = top_k;
    spec.timeout_secs = 30;
    return spec;
}

FetchResult<TeacherTargets> fetch_body(const std::string& body, std::uint32_t top_k = 0) {
    ScriptedHttpServer server([&](const SeenRequest&) {
        ScriptedReply reply;
        reply.body = body;
        return reply;
    });
    Loop loop;
    const auto teacher = loop.teacher(seed_spec(server, top_k)).value();
    return loop.fetch(*teacher, 0, test::make_batch(1, 2), 20s);
}

TEST(SeedTeacher, AsksInTheSeedsFormAndReadsLogits) {
    ScriptedHttpServer server([](const SeenRequest&) {
        ScriptedReply reply;
        reply.body = R"({"usage":{"x":[1]},"logits":[[[0.1,-2e1,3],[4,5,6.5]],[[1,2,3],[1,2,3]]],"model":"m"})";
        return reply;
    });
    Loop loop;
    const auto teacher = loop.teacher(seed_spec(server, 0)).value();
    const auto targets = loop.fetch(*teacher, 0, test::make_batch(2, 2), 20s).value();
    EXPECT_EQ(targets.kind, TeacherTargets::Kind::logits);
    EXPECT_EQ(targets.width, 3U);
    EXPECT_EQ(floats_of(targets.values), (std::vector<float>{0.1F, -20, 3, 4, 5, 6.5F, 1, 2, 3, 1, 2, 3}));
    EXPECT_GE(targets.held_bytes, 48U);
    const auto request = server.requests().at(0);
    EXPECT_EQ(request.target, "/v1/completions");
    EXPECT_EQ(request.body, R"({"input_ids":[[1,2],[3,4]],"return_logits":true})");
    EXPECT_EQ(request.headers.at("content-type"), "application/json");
}

TEST(SeedTeacher, ReducesToTopK) {
    const auto targets = fetch_body(R"({"logits":[[[0,2,1],[3,0,0]]]})", 2).value();
    EXPECT_EQ(targets.kind, TeacherTargets::Kind::topk);
    EXPECT_EQ(test::ids_of(targets.ids), (std::vector<std::uint32_t>{1, 2, 0, 1}));
    const double total = 1 + std::exp(2.0) + std::exp(1.0);
    EXPECT_NEAR(floats_of(targets.values)[0], 2 - std::log(total), 1e-6);
    EXPECT_NEAR(floats_of(targets.tail)[0], -std::log(total), 1e-6);
}

TEST(SeedTeacher, RefusesWhatIsNotARectangleOfNumbers) {
    for (const char* body :
         {"", "[]", "{}", R"({"logits":3})", R"({"logits":[]})", R"({"logits":[[]]})", R"({"logits":[[[],[]]]})",
          R"({"logits":[[[1,2]]]})", R"({"logits":[[[1,2],[1]]]})", R"({"logits":[[[1,2],[1,2,3]]]})",
          R"({"logits":[[[1,2],[1,2],[1,2]]]})", R"({"logits":[[[1,2],[1,2]],[[1,2],[1,2]]]})",
          R"({"logits":[[[1,2],[1,"2"]]]})", R"({"logits":[[[1,2],[1,null]]]})", R"({"logits":[[[1,2],[1,NaN]]]})",
          R"({"logits":[[[1,2],[1,2]]})", R"({"logits":[[1,2],[3,4]]})", R"({"logits":[[[1,2],[1e400,2]]]})",
          "<html>busy</html>"}) {
        for (const std::uint32_t top_k : {0U, 1U}) {
            const auto result = fetch_body(body, top_k);
            ASSERT_FALSE(result) << body;
            EXPECT_EQ(result.error().kind, FailureKind::bad_response) << body;
            EXPECT_NE(result.error().message.find("127.0.0.1"), std::string::npos) << body;
        }
    }
}

ScriptedReply rows_of(const SeenRequest& request, int width) {
    std::string row;
    for (int i = 0; i < width; ++i) {
        row += (i > 0 ? "," : "") + std::to_string(i % 7);
    }
    ScriptedReply reply;
    reply.body = R"({"logits":[[[)" + row + "],[" + row + "],[" + row + "]]]}";
    return reply;
}

TEST(SeedTeacher, TheProbeFindsOutHowManyTokensThereAre) {
    ScriptedHttpServer server([](const SeenRequest& request) { return rows_of(request, 20); });
    Loop loop;
    for (const std::uint32_t top_k : {0U, 4U}) {
        const auto teacher = loop.teacher(seed_spec(server, top_k)).value();
        const auto info = loop.run(teacher->probe(20)).value();
        EXPECT_EQ(info.top_k, top_k);
        EXPECT_TRUE(info.deterministic);
        EXPECT_EQ(info.vocabulary_size, 20U);
        // Answers are over the teacher's tokens; what is reduced here is of those that the student has.
        for (const std::uint32_t student : {18U, 21U}) {
            const auto other = loop.run(teacher->probe(student)).value();
            EXPECT_EQ(other.vocabulary_size, 20U);
            EXPECT_EQ(other.width, top_k == 0 ? 20U : 4U);
            const auto answer = loop.fetch(*teacher, 0, test::make_batch(1, 3), std::chrono::seconds(20));
            ASSERT_TRUE(answer) << answer.error().message;
            EXPECT_EQ(find_defect(*answer, top_k == 0 ? 20U : student), std::nullopt);
        }
    }
}

TEST(SeedTeacher, StatesTheSizeOfItsAnswers) {
    ScriptedHttpServer server([](const SeenRequest& request) { return rows_of(request, 20); });
    for (const std::uint32_t top_k : {0U, 4U, 40U}) {
        Loop loop;
        RemoteTeacherOptions options;
        options.traffic = std::make_shared<TrafficCounters>();
        const auto teacher = loop.teacher(seed_spec(server, top_k), options).value();
        EXPECT_EQ(teacher->answer_size(1, 3).max_wire_bytes, std::nullopt) << "the vocabulary is not known yet";
        ASSERT_TRUE(loop.run(teacher->probe(20)));
        const AnswerSize stated = teacher->answer_size(1, 3);
        const std::uint64_t before = options.traffic->bytes_received.load();
        const auto targets = loop.fetch(*teacher, 0, test::make_batch(1, 3), 20s).value();
        const std::size_t arrays = targets.ids.bytes.size() + targets.values.bytes.size() + targets.tail.bytes.size();
        EXPECT_EQ(stated.held_bytes, arrays);
        EXPECT_LE(options.traffic->bytes_received.load() - before, stated.max_wire_bytes);
    }
}

TEST(SeedTeacher, TheProbeNoticesAnswersThatChange) {
    int count = 0;
    ScriptedHttpServer server([&count](const SeenRequest& request) {
        auto reply = rows_of(request, 5);
        reply.body.insert(reply.body.find("4]"), std::to_string(++count));
        return reply;
    });
    Loop loop;
    const auto teacher = loop.teacher(seed_spec(server, 0)).value();
    EXPECT_FALSE(loop.run(teacher->probe(5)).value().deterministic);
}

}  // namespace
}  // namespace distilld
