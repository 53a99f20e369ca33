#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <boost/json/parse.hpp>

#include "server/teacher/teacher_codec.hpp"

namespace distilld::teacher {
namespace {

namespace json = boost::json;
using testing::ElementsAre;
using testing::HasSubstr;

Result<SamplePlan> plan_of(const std::string& inputs, const std::string& rest = {}) {
    auto body = std::make_shared<const std::string>(R"({"id":"7","inputs":[)" + inputs + "]" + rest + "}");
    auto request = read_infer(std::move(body), std::nullopt, ScoreLimits());
    return request ? parse_samples(std::move(*request), {{"x", "c"}, {"y", "h"}}) : request.error();
}

std::string error_of(const std::string& inputs, const std::string& rest = {}) {
    const auto plan = plan_of(inputs, rest);
    return plan ? "accepted" : plan.error().message;
}

constexpr const char* kX = R"({"name":"x","datatype":"FP32","shape":[2,2],"data":[1,2,3,4]})";
constexpr const char* kC = R"({"name":"c","datatype":"INT64","shape":[2],"data":[5,6]})";

TEST(SampleAnswer, ReadsTensorsOfAnyDatatype) {
    const auto plan = plan_of(std::string(kC) + "," + kX, R"(,"outputs":[{"name":"h"}])");
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->id, "7");
    EXPECT_EQ(plan->samples.rows, 2U);
    EXPECT_THAT(plan->samples.labels, ElementsAre(0, 0));
    const SampleTensor* x = find_tensor(plan->samples.tensors, "x");
    const SampleTensor* c = find_tensor(plan->samples.tensors, "c");
    ASSERT_TRUE(x != nullptr && c != nullptr);
    EXPECT_THAT(x->sample_shape, ElementsAre(2));
    EXPECT_TRUE(c->sample_shape.empty());
    EXPECT_EQ(c->values.type, ElementType::i64);
    EXPECT_EQ(c->values.bytes.size(), 16U);
    EXPECT_EQ(plan->outputs.size(), 1U);
}

TEST(SampleAnswer, NamesWhatIsWrong) {
    const std::string x(kX);
    const std::string c(kC);
    EXPECT_EQ(error_of(x), "c is missing");
    EXPECT_EQ(error_of(x + "," + c + "," + x), "x appears twice");
    EXPECT_THAT(error_of(R"({"name":"z","datatype":"FP32","shape":[1],"data":[1]})"), HasSubstr("no input 'z'"));
    EXPECT_THAT(error_of(R"({"name":"c","datatype":"UINT16","shape":[2],"data":[1,2]})"),
                HasSubstr("c has datatype UINT16: FP16, BF16, FP32"));
    EXPECT_THAT(error_of(R"({"name":"x","datatype":"FP32","shape":[0,2],"data":[]})"), HasSubstr("at least one value"));
    EXPECT_THAT(error_of(R"({"name":"x","datatype":"FP32","shape":[],"data":[1]})"), HasSubstr("x has shape []"));
    EXPECT_EQ(error_of(x + R"(,{"name":"c","datatype":"INT64","shape":[3],"data":[1,2,3]})"),
              "c has 3 samples, x has 2");
    EXPECT_THAT(error_of(x + "," + c, R"(,"outputs":[{"name":"q"}])"), HasSubstr("no output 'q': it has y, h"));
    EXPECT_EQ(error_of(x + "," + c, R"(,"outputs":[{"name":"y"},{"name":"y"}])"), "output y is asked for twice");
}

TEST(SampleAnswer, ABoolIsZeroOrOne) {
    const std::string json = R"({"inputs":[{"name":"x","datatype":"BOOL","shape":[2],)"
                             R"("parameters":{"binary_data_size":2}}]})";
    const auto with = [&](const char* bytes) {
        auto request = read_infer(std::make_shared<const std::string>(json + std::string(bytes, 2)),
                                  std::to_string(json.size()), ScoreLimits());
        return parse_samples(std::move(*request), {{"x"}, {"y"}});
    };
    EXPECT_TRUE(with("\0\1"));
    const auto refused = with("\1\2");
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("neither 0 nor 1"));
}

TEST(SampleAnswer, HasTheOutputsAsAskedFor) {
    const auto plan = plan_of(std::string(kX) + "," + kC, R"(,"outputs":[{"name":"h"},)"
                                                          R"({"name":"y","parameters":{"binary_data":true}}])");
    ASSERT_TRUE(plan);
    const std::array<float, 4> y{1, 2, 3, 4};
    const std::array<double, 2> h{0.5, -0.25};
    TeacherTargets targets;
    targets.kind = TeacherTargets::Kind::tensors;
    targets.rows = 2;
    targets.tensors = {{"y", {2}, {ElementType::f32, std::as_bytes(std::span(y))}},
                       {"h", {}, {ElementType::f64, std::as_bytes(std::span(h))}}};
    targets.held_bytes = 32;
    EXPECT_EQ(sample_answer_bytes(*plan, targets), 32U + 16U + 2U * 14U);
    const auto message = build_samples(*plan, targets, "m");
    ASSERT_TRUE(message) << message.error().message;
    ASSERT_TRUE(message->json_header_length);
    EXPECT_EQ(message->body.size(), *message->json_header_length + 16);
    const json::value parsed = json::parse(message->body.substr(0, *message->json_header_length));
    EXPECT_EQ(parsed.at_pointer("/outputs/0/name"), "h");
    EXPECT_EQ(parsed.at_pointer("/outputs/0/datatype"), "FP64");
    EXPECT_EQ(parsed.at_pointer("/outputs/0/data/1"), -0.25);
    EXPECT_EQ(parsed.at_pointer("/outputs/1/shape"), json::value({2, 2}));
}

}  // namespace
}  // namespace distilld::teacher
