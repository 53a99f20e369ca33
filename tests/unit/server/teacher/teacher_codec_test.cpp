#include "server/teacher/teacher_codec.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/object.hpp>

#include <boost/json/parse.hpp>
#include <cstring>
#include <limits>

#include "tests/unit/server/teacher/fake_scorer.hpp"

namespace distilld::teacher {
namespace {

using models::ScoreRequest;
using testing::ElementsAre;
using testing::HasSubstr;

class TeacherCodec : public testing::Test {
  protected:
    Result<InferPlan> infer(std::string body, std::optional<std::string_view> header_length = std::nullopt) {
        const auto request = read_infer(std::make_shared<const std::string>(std::move(body)), header_length, limits_);
        return request ? parse_infer(*request, scorer_.model(), limits_) : Result<InferPlan>(request.error());
    }
    Result<InferPlan> infer_with(const std::string& rest) {
        return infer(R"({"inputs":[{"name":"input_ids","datatype":"INT32","shape":[1,2],"data":[1,2]}])" + rest + "}");
    }
    Result<SeedPlan> parse_text(std::string_view text) {
        const auto body = read_body(text);
        return body ? parse_seed(*body, scorer_.model(), limits_) : Result<SeedPlan>(body.error());
    }
    std::string infer_error(const std::string& rest) {
        const auto plan = infer_with(rest);
        return plan ? "accepted" : plan.error().message;
    }

    FakeScorer scorer_;
    ScoreLimits limits_{12, 1U << 16U, 1U << 20U};
};

std::vector<std::string> names(const InferPlan& plan) {
    std::vector<std::string> all;
    for (const auto& output : plan.outputs) {
        all.push_back(output.name + (output.binary.value() ? "*" : ""));
    }
    return all;
}

TEST_F(TeacherCodec, DefaultsToTopKInJson) {
    const auto plan = infer_with("");
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->score.mode, ScoreRequest::Mode::topk);
    EXPECT_EQ(plan->score.top_k, 10U);  // the whole vocabulary is less than the default
    EXPECT_THAT(plan->score.input_ids, ElementsAre(1, 2));
    EXPECT_THAT(names(*plan), ElementsAre("topk_ids", "topk_logprobs", "token_logprobs", "tail_logprob"));
}

TEST_F(TeacherCodec, HonoursOutputsAndBinaryFlags) {
    const auto plan = infer_with(
        R"(,"id":"x","parameters":{"top_k":3,"binary_data_output":true},"outputs":[{"name":"tail_logprob"},
            {"name":"topk_ids","parameters":{"binary_data":false}}])");
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_THAT(names(*plan), ElementsAre("tail_logprob*", "topk_ids"));
    EXPECT_FALSE(plan->score.token_logprobs);
    EXPECT_EQ(plan->score.top_k, 3U);
    EXPECT_EQ(plan->id, "x");
}

TEST_F(TeacherCodec, ChoosesLogitsByModeOutputOrZeroK) {
    for (const char* rest :
         {R"(,"parameters":{"mode":"logits"})", R"(,"parameters":{"top_k":0})", R"(,"outputs":[{"name":"logits"}])"}) {
        const auto plan = infer_with(rest);
        ASSERT_TRUE(plan) << plan.error().message;
        EXPECT_EQ(plan->score.mode, ScoreRequest::Mode::logits);
        EXPECT_THAT(names(*plan), ElementsAre("logits"));
    }
}

TEST_F(TeacherCodec, ReadsBinaryInt64AndLengths) {
    std::string body = R"({"inputs":[{"name":"seq_lens","datatype":"INT32","shape":[2],"data":[2,1]},
        {"name":"input_ids","datatype":"INT64","shape":[2,2],"parameters":{"binary_data_size":32}}]})";
    const std::string header = std::to_string(body.size());
    const std::int64_t ids[4] = {9, 8, 5, -100};
    body.append(reinterpret_cast<const char*>(ids), sizeof(ids));
    const auto plan = infer(body, header);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_THAT(plan->score.input_ids, ElementsAre(9, 8, 5, -100));
    EXPECT_THAT(plan->score.lengths, ElementsAre(2, 1));

    const std::int64_t huge[4] = {9, 8, std::int64_t{1} << 40, 0};
    std::memcpy(body.data() + body.size() - sizeof(huge), huge, sizeof(huge));
    const auto refused = infer(body, header);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("1099511627776"));
}

TEST_F(TeacherCodec, NamesWhatIsWrong) {
    EXPECT_THAT(infer_error(R"(,"parameters":{"top_k":11})"), HasSubstr("top_k is 11"));
    EXPECT_THAT(infer_error(R"(,"parameters":{"top_k":-1})"), HasSubstr("top_k"));
    EXPECT_THAT(infer_error(R"(,"parameters":{"top_k":2.5})"), HasSubstr("top_k"));
    EXPECT_THAT(infer_error(R"(,"parameters":{"mode":"topk","top_k":0})"), HasSubstr("top_k is 0"));
    EXPECT_THAT(infer_error(R"(,"parameters":{"mode":1})"), HasSubstr("mode"));
    EXPECT_THAT(infer_error(R"(,"outputs":[{"name":"nothing"}])"), HasSubstr("'nothing'"));
    EXPECT_THAT(infer_error(R"(,"parameters":{"mode":"logits"},"outputs":[{"name":"topk_ids"}])"),
                HasSubstr("topk_ids does not exist in mode logits"));
    const auto bad_length = infer("{}", "12x");
    ASSERT_FALSE(bad_length);
    EXPECT_THAT(bad_length.error().message, HasSubstr("Inference-Header-Content-Length"));
    const auto too_many = infer(
        R"({"inputs":[{"name":"input_ids","datatype":"INT32","shape":[13,1],"data":[1,1,1,1,1,1,1,1,1,1,1,1,1]}]})");
    ASSERT_FALSE(too_many);
    EXPECT_THAT(too_many.error().message, HasSubstr("13 tokens"));
}

TEST_F(TeacherCodec, AnswersHiddenStatesInTheTypeAskedFor) {
    EXPECT_THAT(infer_error(R"(,"parameters":{"mode":"hidden"})"), HasSubstr("does not publish the model's head"));
    EXPECT_EQ(build_metadata(scorer_.model(), "teacher", limits_).find("hidden"), std::string::npos);
    scorer_.offer_head();
    const std::string metadata = build_metadata(scorer_.model(), "teacher", limits_);
    EXPECT_THAT(metadata, HasSubstr(R"({"name":"hidden_states","datatype":"FP16","shape":[-1,-1,3]})"));
    EXPECT_THAT(metadata, HasSubstr(R"("hidden_size":3,"head_sha256":"5a5a","head_dtype":"F32")"));

    using Type = ScoreRequest::HiddenType;
    const auto plan = infer_with(R"(,"outputs":[{"name":"hidden_states"}])");
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->score.mode, ScoreRequest::Mode::hidden);
    EXPECT_EQ(plan->score.hidden_type, Type::f16) << "as the model says";
    EXPECT_FALSE(plan->score.token_logprobs);
    for (const auto& [name, type, bytes] : {std::tuple{"FP16", Type::f16, 12U}, std::tuple{"BF16", Type::bf16, 12U},
                                            std::tuple{"FP32", Type::f32, 24U}}) {
        const auto typed = infer_with(R"(,"parameters":{"mode":"hidden","binary_data_output":true,"hidden_dtype":")" +
                                      std::string(name) + "\"}");
        ASSERT_TRUE(typed) << typed.error().message;
        EXPECT_EQ(typed->score.hidden_type, type);
        EXPECT_THAT(names(*typed), ElementsAre("hidden_states*"));
        EXPECT_EQ(typed->answer_bytes, bytes);
        auto result = scorer_.score(typed->score).value();
        const auto message = build_infer(*typed, std::move(result), scorer_.model(), "teacher").value();
        EXPECT_EQ(message.body.size() - *message.json_header_length, bytes);
        EXPECT_THAT(message.body, HasSubstr(R"("head_sha256":"5a5a")"));
        EXPECT_THAT(message.body, HasSubstr(R"("datatype":")" + std::string(name) + "\""));
    }
    EXPECT_THAT(infer_error(R"(,"parameters":{"mode":"hidden","hidden_dtype":"FP8"})"),
                HasSubstr("parameters.hidden_dtype is 'FP8': FP16, BF16 or FP32"));
    EXPECT_THAT(infer_error(R"(,"parameters":{"mode":"hidden"},"outputs":[{"name":"logits"}])"),
                HasSubstr("output logits does not exist in mode hidden"));
}

TEST_F(TeacherCodec, RefusesAnswersBeyondTheLimitBeforeComputing) {
    limits_.max_answer_bytes = 100;
    EXPECT_THAT(infer_error(R"(,"parameters":{"mode":"logits"})"), HasSubstr("limit is 100"));
    const auto seed = parse_text(R"({"input_ids":[[1,2]],"return_logits":true})");
    ASSERT_FALSE(seed);
    EXPECT_THAT(seed.error().message, HasSubstr("limit is 100"));
}

TEST_F(TeacherCodec, AnswersInTheOrderAskedFor) {
    const auto plan = infer_with(
        R"(,"id":"42","parameters":{"top_k":2,"binary_data_output":true},"outputs":[{"name":"topk_logprobs"},
            {"name":"topk_ids"},{"name":"tail_logprob","parameters":{"binary_data":false}}])");
    ASSERT_TRUE(plan) << plan.error().message;
    auto result = scorer_.score(plan->score);
    ASSERT_TRUE(result);
    const auto message = build_infer(*plan, std::move(*result), scorer_.model(), "teacher");
    ASSERT_TRUE(message) << message.error().message;
    const auto answer =
        kserve::parse_infer_response(std::make_shared<const std::string>(message->body), message->json_header_length);
    ASSERT_TRUE(answer) << answer.error().message;
    EXPECT_EQ(answer->id, "42");
    EXPECT_EQ(std::get<std::int64_t>(answer->parameters.at("vocab_size")), 10);
    ASSERT_EQ(answer->outputs.size(), 3U);
    EXPECT_EQ(answer->outputs[0].name, "topk_logprobs");
    EXPECT_EQ(answer->outputs[0].datatype, "FP16");
    EXPECT_THAT(kserve::copy_elements<std::uint16_t>(answer->outputs[0]), ElementsAre(0xBC00, 0xBC01, 0xBC00, 0xBC01));
    EXPECT_THAT(answer->outputs[1].shape, ElementsAre(1, 2, 2));
    EXPECT_THAT(kserve::copy_elements<std::uint32_t>(answer->outputs[1]), ElementsAre(1, 2, 2, 3));
    EXPECT_FALSE(answer->outputs[2].binary);
    EXPECT_THAT(kserve::copy_elements<float>(answer->outputs[2]), ElementsAre(-2.5F, -2.5F));
}

TEST_F(TeacherCodec, SeedNumbersRoundTrip) {
    const auto plan = parse_text(R"({"input_ids":[[1],[2]],"return_logits":true})");
    ASSERT_TRUE(plan) << plan.error().message;
    models::ScoreResult result;
    const std::vector<float> values{
        0.1F, -1.0F / 3.0F, 1e-38F, std::numeric_limits<float>::max(), -0.0F, std::numeric_limits<float>::denorm_min()};
    result.logits_f32 = values;
    const auto document = boost::json::parse(build_seed(plan->score, result, 3));
    std::vector<float> read;
    const auto& logits = document.at("logits").as_array();
    ASSERT_EQ(logits.size(), 2U);
    for (const auto& row : logits) {
        ASSERT_EQ(row.as_array().size(), 1U);
        for (const auto& value : row.as_array()[0].as_array()) {
            read.push_back(value.to_number<float>());
        }
    }
    ASSERT_EQ(read.size(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
        EXPECT_EQ(read[i], values[i]);
    }
}

TEST_F(TeacherCodec, SeedNamesWhatIsWrong) {
    const auto error = [&](std::string_view body) {
        const auto plan = parse_text(body);
        return plan ? std::string("accepted") : plan.error().message;
    };
    EXPECT_THAT(error("{"), HasSubstr("JSON"));
    EXPECT_THAT(error("[]"), HasSubstr("object"));
    EXPECT_THAT(error(R"({"input_ids":[[1]]})"), HasSubstr("return_logits"));
    EXPECT_THAT(error(R"({"input_ids":[[1,2],[3]],"return_logits":true})"), HasSubstr("input_ids[1] has 1 ids"));
    EXPECT_THAT(error(R"({"input_ids":[[1,10]],"return_logits":true})"), HasSubstr("input_ids[0][1] is 10"));
    EXPECT_THAT(error(R"({"input_ids":[[1,true]],"return_logits":true})"), HasSubstr("input_ids[0][1]"));
    EXPECT_THAT(error(R"({"input_ids":[[1,1,1,1,1,1,1,1,1]],"return_logits":true})"), HasSubstr("8 at most"));
}

}  // namespace
}  // namespace distilld::teacher
