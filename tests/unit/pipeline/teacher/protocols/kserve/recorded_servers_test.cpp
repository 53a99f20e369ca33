#include <gtest/gtest.h>

#include <cmath>

#include "pipeline/teacher/protocols/kserve/message.hpp"
#include "tests/unit/pipeline/teacher/teacher_fixture.hpp"

// Replays of what Triton 2.51, the KServe SDK 0.21 and MLServer 1.7 answered for a small Llama with 512 tokens
// (tests/fixtures/teachers). The probe asks for three tokens, so it gets the first rows of a recording.

namespace distilld {
namespace {

using namespace std::chrono_literals;
using kserve::InferTensor;
using test::floats_of;
using test::ids_of;
using test::Loop;
using test::read_fixture;
using test::ScriptedHttpServer;
using test::ScriptedReply;
using test::SeenRequest;

/// Top five of the first two rows, from a float64 log-softmax of the reference model's logits.
const std::vector<std::uint32_t> kReferenceIds{335, 30, 108, 109, 71, 363, 307, 422, 25, 335};
const std::vector<float> kReferenceLogProbs{-1.64068F, -1.72860F, -2.63888F, -2.77698F, -3.27770F,
                                            -1.00570F, -2.94151F, -2.95275F, -3.07299F, -3.56257F};

/// The first `columns` positions of every output of a recorded [1, 10, …] answer.
ScriptedReply cut(const std::string& body, std::optional<std::size_t> header_length, std::int64_t columns,
                  bool chunked) {
    auto message = kserve::parse_infer_response(std::make_shared<const std::string>(body), header_length).value();
    for (InferTensor& output : message.outputs) {
        output.bytes = output.bytes.first(output.bytes.size() / 10 * static_cast<std::size_t>(columns));
        output.shape[1] = columns;
    }
    auto encoded = kserve::build_infer_response(message).value();
    ScriptedReply reply;
    reply.body = std::move(encoded.body);
    reply.chunked = chunked;
    if (encoded.json_header_length) {
        reply.headers = {{"inference-header-content-length", std::to_string(*encoded.json_header_length)}};
    }
    return reply;
}

struct Recording {
    std::string metadata;
    std::string answer;
    std::optional<std::size_t> header_length;
    bool chunked = false;
    bool refuses_binary = false;
};

ScriptedHttpServer::Handler replay(const Recording& recording) {
    return [recording](const SeenRequest& request) {
        ScriptedReply reply;
        if (request.target == "/v2/health/ready") {
            return reply;
        }
        if (request.method == "GET") {
            reply.body = read_fixture(recording.metadata);
            return reply;
        }
        const auto header = request.headers.find("inference-header-content-length");
        if (recording.refuses_binary && header != request.headers.end()) {
            reply.status = 500;
            reply.body = read_fixture("mlserver-err-binary-in.txt");
            return reply;
        }
        const bool probing = request.body.find("[1,3]") != std::string::npos;
        const std::string body = read_fixture(recording.answer);
        if (!probing) {
            reply.body = body;
            reply.chunked = recording.chunked;
            if (recording.header_length) {
                reply.headers = {{"inference-header-content-length", std::to_string(*recording.header_length)}};
            }
            return reply;
        }
        return cut(body, recording.header_length, 3, recording.chunked);
    };
}

void expect_reference(const TeacherTargets& targets, float tolerance) {
    ASSERT_EQ(targets.kind, TeacherTargets::Kind::topk);
    ASSERT_EQ(targets.width, 5U);
    const auto ids = ids_of(targets.ids);
    const auto values = floats_of(targets.values);
    ASSERT_EQ(ids.size(), 50U);
    EXPECT_EQ(std::vector<std::uint32_t>(ids.begin(), ids.begin() + 10), kReferenceIds);
    for (std::size_t i = 0; i < 10; ++i) {
        EXPECT_NEAR(values[i], kReferenceLogProbs[i], tolerance) << i;
    }
}

TEST(RecordedServers, TritonWithContextLogits) {
    ScriptedHttpServer server(replay({"triton-model-meta.json", "triton-infer-binary.bin", 174}));
    Loop loop;
    const auto teacher = loop.teacher(test::kserve_spec(server.url(), 0, "tensorrt_llm")).value();
    const auto info = loop.run(teacher->probe(512)).value();
    EXPECT_EQ(info.vocabulary_size, 512U);
    EXPECT_EQ(info.top_k, 0U);
    EXPECT_TRUE(info.deterministic);
    const auto targets = loop.fetch(*teacher, 0, test::recorded_batch(), 20s).value();
    ASSERT_EQ(targets.kind, TeacherTargets::Kind::logits);
    EXPECT_EQ(targets.values.bytes.size(), 10U * 512U * 4U);
    EXPECT_NEAR(floats_of(targets.values)[0], -0.650209903717041F, 1e-6);
    // The request is the recorded one, but for the id and the order of the JSON.
    const auto mine = server.requests().back();
    const auto parsed = kserve::parse_infer_request(std::make_shared<const std::string>(mine.body),
                                                    std::stoul(mine.headers.at("inference-header-content-length")))
                            .value();
    const auto theirs = kserve::parse_infer_request(
                            std::make_shared<const std::string>(read_fixture("triton-infer-binary.request.bin")), 528)
                            .value();
    ASSERT_EQ(parsed.inputs.size(), theirs.inputs.size());
    for (std::size_t i = 0; i < parsed.inputs.size(); ++i) {
        EXPECT_EQ(parsed.inputs[i].name, theirs.inputs[i].name);
        EXPECT_EQ(parsed.inputs[i].datatype, theirs.inputs[i].datatype);
        EXPECT_EQ(parsed.inputs[i].shape, theirs.inputs[i].shape);
        EXPECT_EQ(kserve::copy_elements<std::uint8_t>(parsed.inputs[i]),
                  kserve::copy_elements<std::uint8_t>(theirs.inputs[i]));
    }
    EXPECT_EQ(mine.target, "/v2/models/tensorrt_llm/infer");
}

TEST(RecordedServers, TritonReducedToTopK) {
    for (const char* answer : {"triton-infer-binary.bin", "triton-infer-json.json"}) {
        const bool binary = std::string(answer).ends_with(".bin");
        ScriptedHttpServer server(
            replay({"triton-model-meta.json", answer, binary ? std::optional<std::size_t>(174) : std::nullopt}));
        Loop loop;
        const auto teacher = loop.teacher(test::kserve_spec(server.url(), 5, "tensorrt_llm")).value();
        const auto info = loop.run(teacher->probe(512)).value();
        EXPECT_EQ(info.top_k, 5U);
        const auto targets = loop.fetch(*teacher, 0, test::recorded_batch(), 20s).value();
        expect_reference(targets, 1e-4F);
        double sum = std::exp(floats_of(targets.tail)[0]);
        for (int i = 0; i < 5; ++i) {
            sum += std::exp(floats_of(targets.values)[static_cast<std::size_t>(i)]);
        }
        EXPECT_NEAR(sum, 1, 1e-6);
    }
}

TEST(RecordedServers, KserveSdkAnswersInChunksWithNulls) {
    ScriptedHttpServer server(replay({"kserve-model-meta.json", "kserve-infer-binary.txt", 259, true}));
    Loop loop;
    const auto teacher = loop.teacher(test::kserve_spec(server.url(), 5)).value();
    const auto info = loop.run(teacher->probe(512)).value();
    EXPECT_EQ(info.top_k, 5U);
    const auto targets = loop.fetch(*teacher, 0, test::recorded_batch(), 20s).value();
    expect_reference(targets, 1e-4F);
    EXPECT_TRUE(targets.tail.bytes.empty());
    EXPECT_EQ(targets.ids.type, ElementType::i32);
    EXPECT_NE(info.description.find("binary answers"), std::string::npos) << info.description;
}

TEST(RecordedServers, MlserverRefusesBinaryAndAnswersJson) {
    ScriptedHttpServer server(
        replay({"mlserver-model-meta.json", "mlserver-infer-topk5.json", std::nullopt, false, true}));
    Loop loop;
    const auto teacher = loop.teacher(test::kserve_spec(server.url(), 5)).value();
    const auto info = loop.run(teacher->probe(512)).value();
    EXPECT_NE(info.description.find("JSON requests, JSON answers"), std::string::npos) << info.description;
    const auto before = server.requests().size();
    const auto targets = loop.fetch(*teacher, 0, test::recorded_batch(), 20s).value();
    expect_reference(targets, 1e-4F);
    EXPECT_EQ(server.requests().size(), before + 1);  // it remembers: no binary attempt
}

TEST(RecordedServers, EveryTruncationOfARecordedAnswerIsABadResponse) {
    const std::string whole = read_fixture("kserve-infer-binary.txt");
    std::size_t length = 0;
    ScriptedHttpServer server([&](const SeenRequest&) {
        ScriptedReply reply;
        reply.body = whole.substr(0, length);
        reply.headers = {{"inference-header-content-length", "259"}};
        return reply;
    });
    Loop loop;
    const auto teacher = loop.teacher(test::kserve_spec(server.url(), 5)).value();
    for (length = 0; length < whole.size(); ++length) {
        const auto result = loop.fetch(*teacher, 0, test::recorded_batch(), 20s);
        ASSERT_FALSE(result) << length;
        EXPECT_EQ(result.error().kind, FailureKind::bad_response) << length;
    }
    const auto complete = loop.fetch(*teacher, 0, test::recorded_batch(), 20s);
    EXPECT_TRUE(complete);
}

}  // namespace
}  // namespace distilld
