#include "pipeline/teacher/protocols/kserve/infer_codec.hpp"

#include <gtest/gtest.h>

#include "tests/unit/pipeline/teacher/teacher_fixture.hpp"

namespace distilld {
namespace {

using namespace std::chrono_literals;
using kserve::Dialect;
using test::floats_of;
using test::ids_of;
using test::kserve_spec;
using test::Loop;
using test::make_batch;
using test::own_topk_reply;
using test::ScriptedHttpServer;
using test::ScriptedReply;
using test::SeenRequest;

/// Our own teacher, whose metadata has these parameters.
ScriptedHttpServer::Handler teacher_with(kserve::Parameters parameters, ScriptedHttpServer::Handler infer) {
    return [parameters = std::move(parameters), infer = std::move(infer)](const SeenRequest& request) {
        ScriptedReply reply;
        if (request.method == "POST") {
            return infer(request);
        }
        if (request.target != "/v2/health/ready") {
            auto metadata = kserve::own_teacher_metadata("teacher");
            metadata.parameters = parameters;
            reply.body = kserve::build_model_metadata(metadata);
        }
        return reply;
    };
}

TEST(KserveRequests, StayBelowTheLimitsThatTheMetadataStates) {
    const auto batch = std::make_shared<TokenBatch>(*make_batch(5, 4));
    std::const_pointer_cast<TokenBatch>(batch)->lengths = {4, 3, 2, 1, 4};
    ScriptedHttpServer limitless(teacher_with({}, own_topk_reply));
    Loop loop;
    const auto whole_teacher = loop.teacher(kserve_spec(limitless.url(), 4)).value();
    ASSERT_TRUE(loop.run(whole_teacher->probe(512)));
    const std::size_t asked = limitless.requests().size();
    const auto whole = loop.fetch(*whole_teacher, 0, batch, 20s).value();
    EXPECT_EQ(limitless.requests().size(), asked + 1) << "no limit: one request a micro-batch";

    for (const kserve::Parameters& parameters : {kserve::Parameters{{"max_batch_size", std::int64_t{2}}},
                                                 kserve::Parameters{{"max_tokens", std::int64_t{9}}}}) {
        ScriptedHttpServer server(teacher_with(parameters, own_topk_reply));
        const auto teacher = loop.teacher(kserve_spec(server.url(), 4)).value();
        ASSERT_TRUE(loop.run(teacher->probe(512)));
        const std::size_t before = server.requests().size();
        const auto joined = loop.fetch(*teacher, 0, batch, 20s).value();
        EXPECT_EQ(ids_of(joined.ids), ids_of(whole.ids));
        EXPECT_EQ(floats_of(joined.values), floats_of(whole.values));
        EXPECT_EQ(floats_of(joined.tail), floats_of(whole.tail));
        EXPECT_EQ(joined.vocabulary, 512U);
        const auto requests = server.requests();
        ASSERT_EQ(requests.size(), before + 3);
        std::vector<std::int64_t> rows;
        std::vector<std::int32_t> lengths;
        for (std::size_t i = before; i < requests.size(); ++i) {
            const auto parsed =
                kserve::parse_infer_request(std::make_shared<const std::string>(requests[i].body),
                                            std::stoul(requests[i].headers.at("inference-header-content-length")))
                    .value();
            rows.push_back(parsed.inputs.at(0).shape.at(0));
            for (const auto length : kserve::copy_elements<std::int32_t>(parsed.inputs.at(1))) {
                lengths.push_back(length);
            }
        }
        EXPECT_EQ(rows, (std::vector<std::int64_t>{2, 2, 1}));
        EXPECT_EQ(lengths, batch->lengths);
    }
}

TEST(KserveRequests, OneThatFailsFailsTheMicroBatch) {
    int answered = 0;
    ScriptedHttpServer server(teacher_with({{"max_batch_size", std::int64_t{1}}}, [&](const SeenRequest& request) {
        ScriptedReply overloaded;
        overloaded.status = 503;
        return ++answered == 4 ? overloaded : own_topk_reply(request);  // two of the probe, one row
    }));
    Loop loop;
    const auto teacher = loop.teacher(kserve_spec(server.url(), 4)).value();
    ASSERT_TRUE(loop.run(teacher->probe(512)));
    const auto failed = loop.fetch(*teacher, 0, make_batch(3, 2), 20s);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().kind, FailureKind::overloaded);
    EXPECT_NE(failed.error().message.find(server.url()), std::string::npos);
    EXPECT_EQ(answered, 4) << "the third row is not asked for";
}

TEST(KserveRequests, ASequenceAboveTheTeachersLimitNamesTheField) {
    ScriptedHttpServer server(teacher_with({{"max_tokens", std::int64_t{3}}}, own_topk_reply));
    Loop loop;
    const auto teacher = loop.teacher(kserve_spec(server.url(), 4)).value();
    ASSERT_TRUE(loop.run(teacher->probe(512)));
    const auto refused = loop.fetch(*teacher, 0, make_batch(1, 4), 20s);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, FailureKind::rejected);
    EXPECT_NE(refused.error().message.find("/dataset/sequence_length"), std::string::npos) << refused.error().message;
    EXPECT_NE(refused.error().message.find(server.url()), std::string::npos) << refused.error().message;
}

TEST(KserveAnswers, AreAsLargeAsStatedBeforeTheRequest) {
    ScriptedHttpServer server(teacher_with({}, own_topk_reply));
    Loop loop;
    RemoteTeacherOptions options;
    options.traffic = std::make_shared<TrafficCounters>();
    const auto teacher = loop.teacher(kserve_spec(server.url(), 8), options).value();
    ASSERT_TRUE(loop.run(teacher->probe(512)));
    const AnswerSize stated = teacher->answer_size(16, 128);
    const std::uint64_t before = options.traffic->bytes_received.load();
    const auto targets = loop.fetch(*teacher, 0, make_batch(16, 128), 20s).value();
    const std::size_t arrays = targets.ids.bytes.size() + targets.values.bytes.size() + targets.tail.bytes.size();
    EXPECT_EQ(stated.held_bytes, arrays);
    ASSERT_TRUE(stated.max_wire_bytes);
    EXPECT_LE(options.traffic->bytes_received.load() - before, *stated.max_wire_bytes);
    EXPECT_LE(*stated.max_wire_bytes, 4 * stated.held_bytes + (64U << 10U));
}

TEST(KserveAnswers, StateTheirSizeInEveryForm) {
    const auto size = [](TargetsWanted wanted, Dialect dialect) {
        return kserve::make_infer_codec({}, wanted, std::move(dialect)).value()->answer_size(2, 5);
    };
    Dialect own;
    own.metadata = kserve::own_teacher_metadata("teacher");
    EXPECT_EQ(size({4, 100}, own).held_bytes, 10U * (4 * 6 + 4));
    EXPECT_EQ(size({400, 100}, own).held_bytes, 10U * (100 * 6 + 4)) << "no more than the vocabulary";
    EXPECT_EQ(size({0, 100}, own).held_bytes, 10U * 100 * 2) << "its logits are FP16";
    EXPECT_EQ(size({0, 0}, own).max_wire_bytes, std::nullopt) << "not known before the probe";
    Dialect json = own;
    json.binary_tensor_answers = false;
    EXPECT_GT(*size({0, 100}, json).max_wire_bytes, *size({0, 100}, own).max_wire_bytes);
    Dialect logits = own;
    logits.metadata.outputs = {{"context_logits", "FP32", {-1, -1, -1}}};
    EXPECT_EQ(size({0, 100}, logits).held_bytes, 10U * 100 * 4);
    EXPECT_EQ(size({4, 100}, logits).held_bytes, 10U * (4 * 8 + 4)) << "reduced here";
}

TEST(KserveCodec, ATopkTeacherCannotGiveLogits) {
    Dialect dialect;
    dialect.metadata = kserve::own_teacher_metadata("teacher");
    dialect.metadata.outputs.pop_back();
    EndpointUrl url;
    url.name = "http://here";
    const auto refused = kserve::make_infer_codec(url, {0, 100}, dialect);
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().message.starts_with("http://here: /teacher/top_k: ")) << refused.error().message;
    EXPECT_TRUE(kserve::make_infer_codec(url, {1, 100}, dialect));
}

}  // namespace
}  // namespace distilld
