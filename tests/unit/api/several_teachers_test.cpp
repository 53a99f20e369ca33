#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/serialize.hpp>
#include <stdexcept>

#include "api/job_spec_json.hpp"
#include "api/spec_docs.hpp"
#include "api/spec_fields.hpp"
#include "api/spec_overrides.hpp"
#include "api/spec_paths.hpp"

namespace distilld::api {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kSpec = R"({
    "student": {"model": "models/tiny"},
    "teachers": {
        "math": {"endpoints": ["http://127.0.0.1:8000"], "top_k": 8},
        "code": {"endpoints": ["http://127.0.0.1:8001"], "top_k": 8, "timeout_secs": 5, "ca_file": "x/../ca.pem"}
    },
    "dataset": {"train": "train.jsonl", "sequence_length": 64},
    "training": {"max_steps": 10},
    "output": "out"
})";

/// kSpec with some fields set; the value null removes one.
std::string teachers_with(const std::vector<Override>& changes) {
    auto text = apply_overrides(kSpec, changes);
    if (!text) {
        throw std::runtime_error(text.error().message);
    }
    return *text;
}

/// "pointer: detail" of each violation.
std::vector<std::string> found(const std::vector<Override>& changes) {
    std::vector<std::string> result;
    const auto parsed = parse_job_spec(teachers_with(changes));
    if (!parsed) {
        for (const auto& violation : parsed.error().violations) {
            result.push_back(violation.pointer + ": " + violation.detail);
        }
    }
    return result;
}

TEST(SeveralTeachers, EachHasTheFieldsAndDefaultsOfTheOne) {
    const auto parsed = parse_job_spec(kSpec);
    ASSERT_TRUE(parsed) << describe(parsed.error());
    EXPECT_FALSE(parsed->teacher());
    EXPECT_TRUE(parsed->has_teacher());
    ASSERT_EQ(parsed->teachers.size(), 2U);
    EXPECT_THAT(parsed->teachers.at("math").endpoints, ElementsAre("http://127.0.0.1:8000"));
    EXPECT_EQ(parsed->teachers.at("math").timeout_secs, 60.0);
    EXPECT_EQ(parsed->teachers.at("code").timeout_secs, 5.0);
    EXPECT_EQ(parsed->training.kd_ratio, 1.0) << "there is a teacher";
}

TEST(SeveralTeachers, ASpecIsWhatItWasAfterWritingAndReading) {
    const auto parsed = parse_job_spec(kSpec);
    ASSERT_TRUE(parsed) << describe(parsed.error());
    const std::string written = to_json(*parsed);
    EXPECT_THAT(written, HasSubstr(R"("teachers":{"code":{)"));
    const auto again = parse_job_spec(written);
    ASSERT_TRUE(again) << describe(again.error());
    EXPECT_EQ(to_json(*again), written);
    EXPECT_EQ(again->training.kd_ratio, 1.0);
}

TEST(SeveralTeachers, PathsOfEachBecomeAbsolute) {
    auto parsed = parse_job_spec(kSpec);
    ASSERT_TRUE(parsed);
    make_paths_absolute(*parsed, "/base");
    EXPECT_EQ(parsed->teachers.at("code").ca_file, "/base/ca.pem");
    EXPECT_EQ(parsed->teachers.at("math").ca_file, "");
}

TEST(SeveralTeachers, WhatIsWrongWithOneNamesIt) {
    EXPECT_THAT(found({{"/teachers/math/top_k", "-1"}}), Contains(HasSubstr("/teachers/math/top_k: ")));
    EXPECT_THAT(found({{"/teachers/math/endpoints", "null"}}),
                ElementsAre(testing::StartsWith(
                    "/teachers/math/endpoints: endpoints is required: a list of http or https URLs")));
    EXPECT_THAT(found({{"/teachers/math/cache", "read"}}),
                ElementsAre("/teachers/math/cache: needs a store: give /teachers/math/store too"));
    EXPECT_THAT(found({{"/teachers/math/topk", "3"}}), ElementsAre(HasSubstr("/teachers/math/topk: unknown field")));
    EXPECT_THAT(found({{"/teachers/math", "7"}}), Contains(HasSubstr("/teachers/math: an object is expected")));
}

TEST(SeveralTeachers, NamesAndNumberAreBounded) {
    EXPECT_THAT(found({{"/teachers/a b", "{}"}}),
                ElementsAre(HasSubstr("/teachers/a b: is not a name: must be 1 to 64")));
    EXPECT_THAT(found({{"/teachers", "{}"}}), ElementsAre("/teachers: has 1 to 16 teachers"));
    std::vector<Override> many;
    for (int i = 0; i < 15; ++i) {
        many.emplace_back("/teachers/t" + std::to_string(i), R"({"endpoints": ["http://h:1"], "top_k": 8})");
    }
    EXPECT_THAT(found(many), ElementsAre("/teachers: has 1 to 16 teachers"));
    many.pop_back();
    EXPECT_THAT(found(many), ElementsAre());
}

TEST(SeveralTeachers, TheyFitTogether) {
    EXPECT_THAT(found({{"/teacher", R"({"endpoints": ["http://h:1"]})"}}),
                ElementsAre("/teachers: give teacher or teachers, not both"));
    EXPECT_THAT(found({{"/kind", "generate"}}), Contains(HasSubstr("/teachers: a generate job asks one teacher")));
    EXPECT_THAT(found({{"/teachers/code/top_k", "0"}}),
                ElementsAre("/teachers/math/top_k: is 8, but 0 of code: all teachers send top-k rows, or none does"));
    EXPECT_THAT(
        found({{"/teachers/code/top_k", "0"}, {"/teachers/math/top_k", "0"}, {"/teachers/math/targets", "hidden"}}),
        ElementsAre(HasSubstr("/teachers/math/targets: is hidden, but a student can use the head of one teacher")));
    EXPECT_THAT(found({{"/teachers/code/tokenizer", "t"}, {"/dataset/packing", "false"}}),
                ElementsAre("/teachers/code/tokenizer: is for a single /teacher"));
    EXPECT_THAT(found({{"/teachers/code/store", "a/b"}, {"/teachers/math/store", "a/./b/"}}),
                ElementsAre("/teachers/math/store: is that of code: each has its own"));
}

TEST(SeveralTeachers, TheSchemaRefersToTheOne) {
    const auto schema = job_spec_schema(spec_table());
    const auto& teachers = schema.at("properties").at("teachers");
    EXPECT_EQ(teachers.at("maxProperties"), 16);
    EXPECT_EQ(teachers.at("additionalProperties").at("$ref"), "#/components/schemas/JobSpec/properties/teacher");
}

}  // namespace
}  // namespace distilld::api
