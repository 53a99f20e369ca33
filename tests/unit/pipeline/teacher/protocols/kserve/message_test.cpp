#include "pipeline/teacher/protocols/kserve/message.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/half_float.hpp"
#include "tests/unit/pipeline/teacher/teacher_fixture.hpp"

namespace distilld::kserve {
namespace {

std::shared_ptr<const std::string> shared(std::string text) {
    return std::make_shared<const std::string>(std::move(text));
}

InferResponse sample_response(bool binary) {
    InferResponse response;
    response.model_name = "teacher";
    response.model_version = "1";
    response.id = "r \"1\"";
    response.parameters["vocab_size"] = std::int64_t{512};
    response.parameters["temperature"] = 0.5;
    response.outputs.push_back(
        make_tensor("ids", "UINT32", {1, 2, 2}, std::vector<std::uint32_t>{1, 2, 3, 511}, binary));
    response.outputs.push_back(make_tensor("half", "FP16", {2}, std::vector<std::uint16_t>{0x3C00, 0xC000}, binary));
    response.outputs.push_back(make_tensor("wide", "FP64", {1}, std::vector<double>{-0.1}, binary));
    response.outputs.push_back(make_tensor("flag", "BOOL", {2}, std::vector<std::uint8_t>{0, 1}, binary));
    response.outputs.push_back(make_tensor("big", "UINT64", {1}, std::vector<std::uint64_t>{~0ULL}, binary));
    response.outputs.push_back(make_tensor("none", "FP32", {0, 3}, std::vector<float>{}, binary));
    return response;
}

void expect_same(const InferResponse& a, const InferResponse& b) {
    EXPECT_EQ(a.model_name, b.model_name);
    EXPECT_EQ(a.model_version, b.model_version);
    EXPECT_EQ(a.id, b.id);
    EXPECT_EQ(a.parameters, b.parameters);
    ASSERT_EQ(a.outputs.size(), b.outputs.size());
    for (std::size_t i = 0; i < a.outputs.size(); ++i) {
        EXPECT_EQ(a.outputs[i].name, b.outputs[i].name);
        EXPECT_EQ(a.outputs[i].datatype, b.outputs[i].datatype);
        EXPECT_EQ(a.outputs[i].shape, b.outputs[i].shape);
        EXPECT_EQ(copy_elements<std::uint8_t>(a.outputs[i]), copy_elements<std::uint8_t>(b.outputs[i]));
        EXPECT_EQ(a.outputs[i].binary, b.outputs[i].binary);
    }
}

TEST(KserveMessage, ResponsesSurviveTheRoundTripInBothForms) {
    for (const bool binary : {true, false}) {
        const auto original = sample_response(binary);
        const auto encoded = build_infer_response(original).value();
        EXPECT_EQ(encoded.json_header_length.has_value(), binary);
        expect_same(parse_infer_response(shared(encoded.body), encoded.json_header_length).value(), original);
    }
}

TEST(KserveMessage, BinaryTensorsAreViewsIntoTheBody) {
    const auto encoded = build_infer_response(sample_response(true)).value();
    const auto body = shared(encoded.body);
    const auto parsed = parse_infer_response(body, encoded.json_header_length).value();
    const auto* first = reinterpret_cast<const char*>(parsed.outputs.front().bytes.data());
    EXPECT_EQ(first, body->data() + *encoded.json_header_length);
    EXPECT_GT(body.use_count(), 1);
}

/// Reads each text that changes of two near marks make of `json`.
template <class Read>
std::size_t read_with_broken_marks(const std::string& json, const Read& read) {
    constexpr std::string_view kMarks = "{}[],:\"0n ";
    std::vector<std::size_t> at;
    for (std::size_t i = 0; i < json.size(); ++i) {
        if (kMarks.find(json[i]) < kMarks.size() - 3) {
            at.push_back(i);
        }
    }
    std::size_t accepted = 0;
    for (std::size_t one = 0; one < at.size(); ++one) {
        for (std::size_t other = one + 1; other < std::min(at.size(), one + 6); ++other) {
            for (const char first : kMarks) {
                for (const char second : kMarks) {
                    std::string changed = json;
                    changed[at[one]] = first;
                    changed[at[other]] = second;
                    accepted += read(changed) ? 1U : 0U;
                }
            }
        }
    }
    return accepted;
}

TEST(KserveMessage, TextsWithBrokenMarksAreReadOrRefused) {
    constexpr const char* kMetadata = R"({"name":"m","inputs":[{"name":"i","datatype":"F","shape":[1,2]}],
        "outputs":[{"shape":[1],"datatype":"F","name":"o"}],"platform":"p","parameters":{"a":1}})";
    EXPECT_GT(read_with_broken_marks(kMetadata, [](const auto& text) { return !!parse_model_metadata(text); }), 0U);
    constexpr const char* kRequest = R"({"outputs":[{"parameters":{"a":1},"name":"o"}],
        "inputs":[{"name":"i","datatype":"INT8","shape":[1,1],"data":[1]}],"id":"7"})";
    const auto read_request = [](const auto& text) { return !!parse_infer_request(shared(text), {}, {}); };
    EXPECT_GT(read_with_broken_marks(kRequest, read_request), 0U);
}

TEST(KserveMessage, RequestsSurviveTheRoundTrip) {
    InferRequest request;
    request.id = "7";
    request.parameters["top_k"] = std::int64_t{16};
    request.parameters["mode"] = std::string("topk");
    request.parameters["flag"] = true;
    request.binary_data_output = true;
    request.inputs.push_back(make_tensor("input_ids", "INT32", {1, 3}, std::vector<std::int32_t>{1, -2, 3}));
    request.inputs.push_back(make_tensor("seq_lens", "INT32", {1}, std::vector<std::int32_t>{3}, false));
    request.outputs = {{"a", true}, {"b", false}, {"c", std::nullopt}};
    const auto encoded = build_infer_request(request).value();
    const auto parsed = parse_infer_request(shared(encoded.body), encoded.json_header_length).value();
    EXPECT_EQ(parsed.id, "7");
    EXPECT_EQ(parsed.parameters, request.parameters);
    EXPECT_TRUE(parsed.wants_binary("a"));
    EXPECT_FALSE(parsed.wants_binary("b"));
    EXPECT_TRUE(parsed.wants_binary("c"));
    ASSERT_EQ(parsed.inputs.size(), 2U);
    EXPECT_EQ(copy_elements<std::int32_t>(parsed.inputs[0]), (std::vector<std::int32_t>{1, -2, 3}));
    EXPECT_EQ(copy_elements<std::int32_t>(parsed.inputs[1]), (std::vector<std::int32_t>{3}));
    EXPECT_TRUE(parsed.inputs[0].binary);
    EXPECT_FALSE(parsed.inputs[1].binary);
}

TEST(KserveMessage, ReadsARequestThatARealClientSent) {
    const auto body = shared(test::read_fixture("triton-infer-binary.request.bin"));
    const auto parsed = parse_infer_request(body, 528).value();
    ASSERT_EQ(parsed.inputs.size(), 4U);
    EXPECT_EQ(copy_elements<std::int32_t>(parsed.inputs[0]), test::recorded_batch()->input_ids);
    EXPECT_EQ(parsed.inputs[3].datatype, "BOOL");
    EXPECT_TRUE(parsed.wants_binary("context_logits"));
}

TEST(KserveMessage, EveryTruncationIsAnError) {
    const auto encoded = build_infer_response(sample_response(true)).value();
    for (std::size_t length = 0; length < encoded.body.size(); ++length) {
        EXPECT_FALSE(parse_infer_response(shared(encoded.body.substr(0, length)), encoded.json_header_length))
            << length;
        EXPECT_FALSE(parse_infer_response(shared(encoded.body.substr(0, length)), std::nullopt)) << length;
    }
    const auto json = build_infer_response(sample_response(false)).value();
    for (std::size_t length = 0; length < json.body.size(); ++length) {
        EXPECT_FALSE(parse_infer_response(shared(json.body.substr(0, length)), std::nullopt)) << length;
    }
    EXPECT_FALSE(parse_infer_response(shared(encoded.body + "x"), encoded.json_header_length));
    EXPECT_FALSE(parse_infer_response(shared(encoded.body), *encoded.json_header_length + 1));
    EXPECT_FALSE(parse_infer_response(shared(encoded.body), *encoded.json_header_length - 1));
}

std::string input_error(const std::string& tensor, std::optional<std::size_t> header = std::nullopt,
                        const MessageLimits& limits = {}) {
    const auto body = shared(R"({"inputs":[)" + tensor + "]}");
    if (header) {
        header = body->size();
    }
    const auto parsed = parse_infer_request(body, header, limits);
    return parsed ? "" : parsed.error().message;
}

TEST(KserveMessage, AcceptsFlatAndNestedData) {
    EXPECT_EQ(input_error(R"({"name":"x","shape":[2,2],"datatype":"INT32","data":[1,2,3,4]})"), "");
    EXPECT_EQ(input_error(R"({"name":"x","shape":[2,2],"datatype":"INT32","data":[[1,2],[3,4]]})"), "");
    EXPECT_EQ(input_error(R"({"data":[[1.5],[3]],"datatype":"BF16","shape":[2,1],"name":"x","parameters":null})"), "");
    EXPECT_EQ(input_error(R"({"name":"x","shape":[],"datatype":"FP32","data":[1]})"), "");
}

TEST(KserveMessage, ErrorsNameTheTensor) {
    const auto has = [](const std::string& message, const std::string& part) {
        EXPECT_NE(message.find(part), std::string::npos) << message;
        EXPECT_NE(message.find("'x'"), std::string::npos) << message;
    };
    has(input_error(R"({"name":"x","shape":[2],"datatype":"INT33","data":[1,2]})"), "INT33");
    has(input_error(R"({"name":"x","shape":[2],"datatype":"BYTES","data":["a","b"]})"), "BYTES");
    has(input_error(R"({"name":"x","shape":[3],"datatype":"INT32","data":[1,2]})"), "holds 2 values");
    has(input_error(R"({"name":"x","shape":[1],"datatype":"INT32","data":[1,2]})"), "more values");
    has(input_error(R"({"name":"x","shape":[2,2],"datatype":"INT32","data":[[1,2,3],[4]]})"), "form of its shape");
    has(input_error(R"({"name":"x","shape":[2,1],"datatype":"INT32","data":[1,[2]]})"), "mixes");
    has(input_error(R"({"name":"x","shape":[2],"datatype":"INT32","data":[[1,2]]})"), "deeper");
    has(input_error(R"({"name":"x","shape":[1],"datatype":"INT32","data":[1.5]})"), "not a INT32");
    has(input_error(R"({"name":"x","shape":[1],"datatype":"INT8","data":[128]})"), "not a INT8");
    has(input_error(R"({"name":"x","shape":[1],"datatype":"UINT8","data":[-1]})"), "not a UINT8");
    has(input_error(R"({"name":"x","shape":[1],"datatype":"FP32","data":["1"]})"), "not a FP32");
    has(input_error(R"({"name":"x","shape":[1],"datatype":"INT32"})"), "neither");
    has(input_error(R"({"name":"x","datatype":"INT32","data":[1]})"), "shape");
    has(input_error(R"({"name":"x","shape":[-1],"datatype":"INT32","data":[1]})"), "not a size");
    has(input_error(R"({"name":"x","shape":[1],"datatype":"INT32","parameters":{"binary_data_size":4}})"),
        "Inference-Header-Content-Length");
    has(input_error(R"({"name":"x","shape":[1],"datatype":"INT32","parameters":{"binary_data_size":4}})", 0),
        "0 are left");
    has(input_error(R"({"name":"x","shape":[1],"datatype":"INT32","parameters":{"binary_data_size":5}})", 0),
        "4 bytes of its shape");
    has(input_error(R"({"name":"x","shape":[1],"datatype":"INT32","data":[1],"parameters":{"binary_data_size":4}})"),
        "both");
}

TEST(KserveMessage, SizesAreCheckedBeforeMemoryIsTaken) {
    // Products that overflow, or promise more than the body could hold.
    EXPECT_NE(input_error(R"({"name":"x","shape":[4294967296,4294967296],"datatype":"FP64","data":[1]})"), "");
    EXPECT_NE(
        input_error(R"({"name":"x","shape":[9223372036854775807,9223372036854775807,0],"datatype":"FP64","data":[1]})"),
        "");
    EXPECT_NE(input_error(R"({"name":"x","shape":[1000000000],"datatype":"INT8","data":[1]})").find("cannot hold"),
              std::string::npos);
    MessageLimits small;
    small.max_tensor_bytes = 8;
    EXPECT_EQ(input_error(R"({"name":"x","shape":[2],"datatype":"INT32","data":[1,2]})", std::nullopt, small), "");
    EXPECT_NE(input_error(R"({"name":"x","shape":[3],"datatype":"INT32","data":[1,2,3]})", std::nullopt, small), "");
    small.max_json_bytes = 10;
    EXPECT_NE(input_error("", std::nullopt, small), "");
    MessageLimits one;
    one.max_tensors = 1;
    const std::string tensor = R"({"name":"x","shape":[1],"datatype":"INT32","data":[1]})";
    EXPECT_EQ(input_error(tensor, std::nullopt, one), "");
    EXPECT_NE(input_error(tensor + "," + tensor, std::nullopt, one), "");
}

TEST(KserveMessage, NonFiniteNumbersInJson) {
    InferResponse response;
    const float infinity = std::numeric_limits<float>::infinity();
    response.outputs.push_back(make_tensor("t", "FP32", {2}, std::vector<float>{-infinity, infinity}, false));
    const auto encoded = build_infer_response(response).value();
    const auto values =
        copy_elements<float>(parse_infer_response(shared(encoded.body), std::nullopt).value().outputs[0]);
    EXPECT_EQ(values, (std::vector<float>{std::numeric_limits<float>::lowest(), std::numeric_limits<float>::max()}));
    response.outputs[0] = make_tensor("t", "FP32", {1}, std::vector<float>{std::nanf("")}, false);
    const auto refused = build_infer_response(response);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("'t'"), std::string::npos);
}

TEST(KserveMessage, ReadsTheMetadataOfRealServers) {
    const auto triton = parse_model_metadata(test::read_fixture("triton-model-meta.json")).value();
    EXPECT_EQ(triton.name, "tensorrt_llm");
    ASSERT_NE(triton.find_input("return_context_logits"), nullptr);
    EXPECT_EQ(triton.find_input("return_context_logits")->shape, (std::vector<std::int64_t>{-1, 1}));
    const auto kserve = parse_model_metadata(test::read_fixture("kserve-model-meta.json")).value();  // null versions
    EXPECT_TRUE(kserve.versions.empty());
    const auto mlserver = parse_model_metadata(test::read_fixture("mlserver-model-meta.json")).value();
    EXPECT_NE(mlserver.find_output("context_logits"), nullptr);
    const auto again = parse_model_metadata(build_model_metadata(triton)).value();
    EXPECT_EQ(again.inputs.size(), triton.inputs.size());
    EXPECT_EQ(again.versions, triton.versions);
    EXPECT_FALSE(parse_model_metadata("[]"));
    EXPECT_FALSE(parse_model_metadata(R"({"name":"x"})"));
}

TEST(HalfFloat, AllHalvesSurviveTheRoundTrip) {
    for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
        const float value = half_to_float(static_cast<std::uint16_t>(bits));
        if (std::isnan(value)) {
            EXPECT_TRUE(std::isnan(half_to_float(float_to_half(value))));
        } else {
            EXPECT_EQ(float_to_half(value), bits);
        }
    }
}

TEST(HalfFloat, RoundsToNearestEven) {
    EXPECT_EQ(float_to_half(1.0F + 0x1p-11F), 0x3C00);  // half way: even
    EXPECT_EQ(float_to_half(1.0F + 3 * 0x1p-11F), 0x3C02);
    EXPECT_EQ(float_to_half(1.0F + 0x1.002p-11F), 0x3C01);
    EXPECT_EQ(float_to_half(65519.0F), 0x7BFF);
    EXPECT_EQ(float_to_half(65520.0F), 0x7C00);
    EXPECT_EQ(float_to_half(0x1p-25F), 0x0000);
    EXPECT_EQ(float_to_half(0x1.1p-25F), 0x0001);
    EXPECT_EQ(float_to_half(-0x1p-24F), 0x8001);
    EXPECT_EQ(float_to_bfloat16(1.0F + 0x1p-8F), 0x3F80);
    EXPECT_EQ(float_to_bfloat16(1.0F + 3 * 0x1p-8F), 0x3F82);
}

}  // namespace
}  // namespace distilld::kserve
