#include "server/openai/fine_tuning_request.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

namespace distilld::openai {
namespace {

namespace json = boost::json;
using ::testing::ElementsAre;
using ::testing::Pair;

constexpr const char* kDistillation =
    R"("method":{"type":"distillation","distillation":{"student":{"config":{}},"dataset":{"sequence_length":8},)"
    R"("training":{"max_steps":1}}})";

std::string request(const std::string& more) {
    return R"({"model":"scratch","training_file":"file-a",)" + more + "}";
}

std::vector<std::string> pointers(const std::string& text) {
    std::vector<std::string> found;
    const auto parsed = parse_fine_tuning_request(text);
    if (!parsed) {
        for (const auto& one : parsed.error().violations) {
            found.push_back(one.pointer + " " + one.code);
        }
    }
    return found;
}

json::object spec(const FineTuningRequest& parsed) {
    return json::parse(spec_of(parsed, "/files/a", parsed.validation_file.empty() ? "" : "/files/b", "/out"))
        .get_object();
}

TEST(FineTuningRequest, MakesASpec) {
    const auto parsed = parse_fine_tuning_request(request(
        std::string(R"("validation_file":"file-b","suffix":"s","seed":7,"metadata":{"a":"b"},"integrations":null,)"
                    R"("hyperparameters":{"n_epochs":"auto","batch_size":4},)") +
        kDistillation));
    ASSERT_TRUE(parsed);
    EXPECT_THAT(parsed->metadata, ElementsAre(Pair("a", "b")));
    EXPECT_EQ(json::value(spec(*parsed)), json::parse(R"({
        "name": "s", "student": {"config": {}}, "output": "/out",
        "dataset": {"sequence_length": 8, "train": "/files/a", "eval": "/files/b"},
        "training": {"max_steps": 1, "seed": 7, "batch_size": 4}})"));
}

TEST(FineTuningRequest, TakesTheModelForTheStudentThatNamesNone) {
    const auto parsed = parse_fine_tuning_request(
        R"({"model":"/m","training_file":"f","method":{"type":"distillation","distillation":{}}})");
    ASSERT_TRUE(parsed);
    EXPECT_EQ(spec(*parsed).at("student"), json::parse(R"({"model":"/m"})"));
    EXPECT_EQ(spec(*parsed).at("dataset"), json::parse(R"({"train":"/files/a"})"));
    EXPECT_THAT(
        pointers(R"({"model":"scratch","training_file":"f","method":{"type":"distillation","distillation":{}}})"),
        ElementsAre("/method/distillation/student/config required"));
}

TEST(FineTuningRequest, NamesAllThatIsWrong) {
    EXPECT_THAT(pointers("{"), ElementsAre(" malformed_json"));
    EXPECT_THAT(pointers("[]"), ElementsAre(" wrong_type"));
    EXPECT_THAT(pointers(R"({"model":"a","model":"b"})"), ElementsAre("/model duplicate_key"));
    EXPECT_THAT(pointers("{}"), ElementsAre("/model required", "/training_file required", "/method required"));
    EXPECT_THAT(
        pointers(R"({"model":7,"training_file":"","bogus":1,"metadata":[],"integrations":[1],"method":{"x":1}})"),
        ElementsAre("/model wrong_type", "/training_file invalid_value", "/metadata wrong_type", "/bogus unknown_field",
                    "/integrations unsupported", "/method/type required", "/method/x unknown_field",
                    "/method/distillation required"));
    EXPECT_THAT(
        pointers(request(R"("hyperparameters":{"learning_rate_multiplier":2},"suffix":"a","metadata":{"k":1},)"
                         R"("method":{"type":"dpo","distillation":{"name":"n","kind":"train","output":"o",)"
                         R"("student":{"config":{}},"dataset":{"train":"t"}}})")),
        ElementsAre("/metadata/k wrong_type", "/method/type unsupported", "/method/distillation/output conflict",
                    "/method/distillation/kind conflict", "/method/distillation/dataset/train conflict",
                    "/method/distillation/name conflict", "/hyperparameters/learning_rate_multiplier unsupported"));
    EXPECT_THAT(pointers(std::string(api::kSpecSizeLimit + 1, ' ')), ElementsAre(" too_large"));
}

TEST(FineTuningRequest, PointsIntoTheRequest) {
    const auto parsed = parse_fine_tuning_request(request(
        std::string(R"("validation_file":"file-b","seed":7,"hyperparameters":{"batch_size":4},)") + kDistillation));
    ASSERT_TRUE(parsed);
    api::SpecViolations violations;
    for (const auto* pointer : {"/dataset/train", "/dataset/train/0", "/dataset/eval", "/training/seed",
                                "/training/batch_size", "/training/seeds", "/teacher/endpoints", ""}) {
        violations.violations.push_back({pointer, "c", "d"});
    }
    std::vector<std::string> found;
    for (const auto& one : in_terms_of(*parsed, violations).violations) {
        found.push_back(one.pointer);
    }
    EXPECT_THAT(found, ElementsAre("/training_file", "/training_file/0", "/validation_file", "/seed",
                                   "/hyperparameters/batch_size", "/method/distillation/training/seeds",
                                   "/method/distillation/teacher/endpoints", "/method/distillation"));
}

}  // namespace
}  // namespace distilld::openai
