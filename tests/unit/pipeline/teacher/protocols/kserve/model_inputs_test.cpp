#include <gtest/gtest.h>

#include "pipeline/teacher/protocols/kserve/adapter.hpp"
#include "pipeline/teacher/protocols/kserve/infer_codec.hpp"
#include "pipeline/teacher/protocols/kserve/infer_inputs.hpp"
#include "pipeline/teacher/protocols/kserve/output_choice.hpp"
#include "tests/unit/pipeline/teacher/teacher_fixture.hpp"

// What a model wants of a request beyond token ids, and how much it takes in one.

namespace distilld {
namespace {

using namespace std::chrono_literals;
using kserve::ModelMetadata;
using test::kserve_spec;
using test::Loop;
using test::make_batch;
using test::own_topk_reply;
using test::read_fixture;
using test::ScriptedHttpServer;
using test::ScriptedReply;
using test::SeenRequest;

/// A server of a model with this metadata. `config`: of /config; empty = there is no such page.
ScriptedHttpServer::Handler server_of(ModelMetadata metadata, std::string config,
                                      ScriptedHttpServer::Handler infer = own_topk_reply) {
    return [metadata = std::move(metadata), config = std::move(config),
            infer = std::move(infer)](const SeenRequest& request) {
        ScriptedReply reply;
        if (request.method == "POST") {
            return infer(request);
        }
        if (request.target.ends_with("/config")) {
            reply.status = config.empty() ? 404 : 200;
            reply.body = config;
        } else if (request.target != "/v2/health/ready") {
            reply.body = kserve::build_model_metadata(metadata);
        }
        return reply;
    };
}

ModelMetadata own_with(std::vector<kserve::TensorSpec> inputs) {
    ModelMetadata metadata = kserve::own_teacher_metadata("teacher");
    metadata.inputs.insert(metadata.inputs.end(), inputs.begin(), inputs.end());
    return metadata;
}

kserve::InferRequest parsed(const SeenRequest& request) {
    const auto length = request.headers.find("inference-header-content-length");
    return kserve::parse_infer_request(
               std::make_shared<const std::string>(request.body),
               length == request.headers.end() ? std::nullopt : std::optional<std::size_t>(std::stoul(length->second)))
        .value();
}

std::vector<kserve::InferTensor> inputs_for(const ModelMetadata& metadata) {
    const auto batch = make_batch(2, 3);
    return kserve::make_inputs(metadata, *batch, whole_batch(*batch), 4, true).value();
}

TEST(ModelInputs, MaskAndPositionsGoWhereAModelDeclaresThem) {
    ScriptedHttpServer server(
        server_of(own_with({{"attention_mask", "INT64", {-1, -1}}, {"position_ids", "INT64", {-1, -1}}}), ""));
    Loop loop;
    const auto teacher = loop.teacher(kserve_spec(server.url(), 4)).value();
    ASSERT_TRUE(loop.run(teacher->probe(512)));
    ASSERT_TRUE(loop.fetch(*teacher, 0, make_batch(2, 3), 20s));
    const auto request = parsed(server.requests().back());
    ASSERT_EQ(request.inputs.size(), 4U);
    const auto& mask = request.inputs[2];
    EXPECT_EQ(mask.name, "attention_mask");
    EXPECT_EQ(mask.datatype, "INT64");
    EXPECT_EQ(mask.shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(kserve::copy_elements<std::int64_t>(mask), (std::vector<std::int64_t>(6, 1)));
    const auto& positions = request.inputs[3];
    EXPECT_EQ(positions.name, "position_ids");
    EXPECT_EQ(positions.shape, (std::vector<std::int64_t>{2, 3}));
    EXPECT_EQ(kserve::copy_elements<std::int64_t>(positions), (std::vector<std::int64_t>{0, 1, 2, 0, 1, 2}));
}

TEST(ModelInputs, AreInTheDeclaredTypeAndShape) {
    for (const char* datatype : {"BOOL", "INT8", "UINT8", "INT16", "INT32", "UINT32", "FP16", "BF16", "FP32", "FP64"}) {
        const auto inputs = inputs_for(own_with({{"attention_mask", datatype, {-1, -1}}}));
        ASSERT_EQ(inputs.size(), 3U) << datatype;
        EXPECT_EQ(inputs[2].datatype, datatype);
        EXPECT_EQ(inputs[2].bytes.size(), 6 * *kserve::datatype_size(datatype)) << datatype;
    }
    EXPECT_EQ(kserve::copy_elements<float>(inputs_for(own_with({{"attention_mask", "FP32", {-1, -1}}}))[2]),
              std::vector<float>(6, 1.0F));
    const auto flat = inputs_for(own_with({{"position_ids", "INT32", {-1}}}))[2];
    EXPECT_EQ(flat.shape, std::vector<std::int64_t>{3}) << "the same for each sequence";
    EXPECT_EQ(kserve::copy_elements<std::int32_t>(flat), (std::vector<std::int32_t>{0, 1, 2}));

    const auto refusal = [](kserve::TensorSpec spec) {
        return kserve::check_inputs(own_with({std::move(spec)}), {}).error().message;
    };
    EXPECT_NE(refusal({"attention_mask", "FP32", {-1, 1, -1, -1}}).find("'attention_mask' has 4 dimensions"),
              std::string::npos);
    EXPECT_NE(refusal({"position_ids", "FP32", {-1, -1}}).find("'position_ids' has datatype FP32"), std::string::npos);
}

TEST(ModelInputs, OneThatIsRequiredAndNotKnownIsRefusedByName) {
    ModelMetadata metadata = own_with({{"past_key_values", "FP16", {-1, -1}}, {"seed", "INT64", {1}}});
    const std::string config = R"({"max_batch_size":8,"input":[{"name":"input_ids","optional":false},)"
                               R"({"name":"past_key_values"},{"name":"seed","optional":true}]})";
    ScriptedHttpServer server(server_of(metadata, config));
    Loop loop;
    const auto teacher = loop.teacher(kserve_spec(server.url(), 4)).value();
    const auto refused = loop.run(teacher->probe(512));
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().message.ends_with("inputs that distilld cannot supply: past_key_values"))
        << refused.error().message;
}

TEST(ModelInputs, ThoseLeftOutAreNamedWhenTheServerMissesOne) {
    ScriptedHttpServer server(server_of(own_with({{"past_key_values", "FP16", {-1, -1}}}), "", [](const SeenRequest&) {
        ScriptedReply reply;
        reply.status = 400;
        reply.body = R"({"error":"expected 3 inputs but got 2"})";
        return reply;
    }));
    Loop loop;
    const auto teacher = loop.teacher(kserve_spec(server.url(), 4)).value();
    const auto refused = loop.run(teacher->probe(512));
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("expected 3 inputs"), std::string::npos) << refused.error().message;
    EXPECT_NE(refused.error().message.find("not sent: past_key_values"), std::string::npos) << refused.error().message;
}

TEST(ModelConfig, IsReadAsTritonWritesIt) {
    const auto config = kserve::parse_model_config(read_fixture("triton-model-config.json")).value();
    EXPECT_EQ(config.max_batch_size, 8U);
    EXPECT_EQ(config.required_inputs, (std::vector<std::string>{"input_ids", "input_lengths", "request_output_len"}));
    for (const char* other :
         {"{}", R"({"max_batch_size":-1,"input":{}})", R"({"max_batch_size":"8","input":[1,{}]})"}) {
        EXPECT_EQ(kserve::parse_model_config(other).value().max_batch_size, 0U) << other;
        EXPECT_TRUE(kserve::parse_model_config(other).value().required_inputs.empty()) << other;
    }
    EXPECT_FALSE(kserve::parse_model_config("<html>no such page</html>"));
    EXPECT_FALSE(kserve::parse_model_config("[]"));
}

/// Refuses more than eight sequences in Triton's words.
ScriptedReply at_most_eight(const SeenRequest& request) {
    if (parsed(request).inputs.at(0).shape.at(0) <= 8) {
        return own_topk_reply(request);
    }
    ScriptedReply reply;
    reply.status = 400;
    reply.body = read_fixture("triton-err-batch9.json");
    return reply;
}

TEST(ModelConfig, AServersLargestBatchIsKnownBeforeTheFirstMicroBatch) {
    ScriptedHttpServer server(
        server_of(kserve::own_teacher_metadata("teacher"), R"({"max_batch_size":8})", at_most_eight));
    Loop loop;
    RemoteTeacherOptions options;
    options.batch_rows = 20;
    const auto teacher = loop.teacher(kserve_spec(server.url(), 4), options).value();
    const auto info = loop.run(teacher->probe(512));
    ASSERT_TRUE(info) << info.error().message;
    EXPECT_NE(info->description.find("at most 8 sequences a request"), std::string::npos) << info->description;
    const std::size_t before = server.requests().size();
    ASSERT_TRUE(loop.fetch(*teacher, 0, make_batch(20, 2), 20s));
    EXPECT_EQ(server.requests().size(), before + 3);
}

TEST(ModelConfig, ALimitThatNoPageTellsIsFoundByTheProbe) {
    ScriptedHttpServer server(server_of(kserve::own_teacher_metadata("teacher"), "", at_most_eight));
    for (const std::uint32_t rows : {8U, 9U}) {
        Loop loop;
        RemoteTeacherOptions options;
        options.batch_rows = rows;
        const auto teacher = loop.teacher(kserve_spec(server.url(), 4), options).value();
        const auto info = loop.run(teacher->probe(512));
        EXPECT_EQ(info.has_value(), rows == 8);
        if (!info) {
            EXPECT_NE(info.error().message.find("batch-size must be <= 8"), std::string::npos) << info.error().message;
            EXPECT_NE(info.error().message.find("/training/batch_size"), std::string::npos) << info.error().message;
        }
    }
}

TEST(KservePath, IsCompletedToTheInferPage) {
    EXPECT_EQ(kserve::complete_path("/v2/models/teacher"), "/v2/models/teacher/infer");
    EXPECT_EQ(kserve::complete_path("/v2/models/teacher/"), "/v2/models/teacher/infer");
    EXPECT_EQ(kserve::complete_path("/serving/v2/models/a/versions/2"), "/serving/v2/models/a/versions/2/infer");
    EXPECT_EQ(kserve::complete_path("/v2/models/infer"), "/v2/models/infer/infer") << "a model of that name";
    for (const char* whole : {"/v2/models/teacher/infer", "/v2/models/a/versions/2/infer", "/v2/models/", "/v2/models",
                              "/v2/models/a/versions", "/v2/models/a/generate", "/other", "/v2/models//infer"}) {
        EXPECT_EQ(kserve::complete_path(whole), whole);
    }
    ScriptedHttpServer server(server_of(kserve::own_teacher_metadata("teacher"), ""));
    Loop loop;
    const auto teacher = loop.teacher(kserve_spec(server.url("/v2/models/teacher"), 4, "other")).value();
    EXPECT_EQ(teacher->endpoint_name(0), server.url("/v2/models/teacher/infer"));
    ASSERT_TRUE(loop.run(teacher->probe(512)));
    EXPECT_EQ(server.requests().back().target, "/v2/models/teacher/infer");
}

}  // namespace
}  // namespace distilld
