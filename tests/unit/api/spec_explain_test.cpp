#include "api/spec_explain.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/job_spec_json.hpp"
#include "api/named_paths.hpp"
#include "api/spec_comments.hpp"
#include "base/json_text.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld::api {
namespace {

namespace json = boost::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(SpecComments, BecomeBlanksOutsideOfTexts) {
    EXPECT_EQ(without_comments("{\"a\": 1, // one\n/* two\nthree */ \"b\": \"// no\"}"),
              "{\"a\": 1,       \n      \n         \"b\": \"// no\"}");
    EXPECT_EQ(without_comments(R"({"a": "\"// no", "b": "\\"} // yes)"), R"({"a": "\"// no", "b": "\\"}       )");
    EXPECT_EQ(without_comments("//"), "  ");
    EXPECT_EQ(without_comments("/"), "/");
}

TEST(SpecComments, WithoutAnEndStaySoThatTheErrorSaysWhere) {
    EXPECT_EQ(without_comments("{} /* no end"), "{} /* no end");
    EXPECT_EQ(without_comments("\"no end // a"), "\"no end // a");
    EXPECT_EQ(without_comments("\"no end\n// a"), "\"no end\n    ");
}

TEST(SpecExplain, AFieldByAnyOfItsNames) {
    const auto text = explain(spec_table(), "training.micro_batches").value();
    EXPECT_THAT(text, StartsWith("training.micro_batches\n  meaning    micro-batches of one optimizer step."));
    EXPECT_THAT(text, HasSubstr("  values     1–65536, \"auto\"\n  default    1\n  on resume  must be the same\n"));
    EXPECT_EQ(explain(spec_table(), "/training/micro_batches").value(), text);
    EXPECT_EQ(explain(spec_table(), "micro_batches").value(), text);
}

TEST(SpecExplain, EachFieldOfANameThatSeveralHave) {
    EXPECT_THAT(explain(spec_table(), "threads").value(),
                ::testing::AllOf(StartsWith("teacher.threads\n"), HasSubstr("\n\ntraining.threads\n")));
}

TEST(SpecExplain, AllFieldsOfASectionAndOfTheWhole) {
    EXPECT_THAT(explain(spec_table(), "checkpoint").value(), StartsWith("checkpoint.every_steps  steps from"));
    EXPECT_EQ(explain(spec_table(), "lora").value(), explain(spec_table(), "student.lora").value());
    const auto all = explain(spec_table(), "").value();
    for (const auto& field : spec_table().fields) {
        std::string name(field.pointer.substr(1));
        std::ranges::replace(name, '/', '.');
        EXPECT_THAT(all, HasSubstr(name + " ")) << field.pointer;
    }
}

TEST(SpecExplain, WhatAWrongNameWasMeantFor) {
    EXPECT_THAT(explain(spec_table(), "tempreature").error().message, HasSubstr("did you mean temperature?"));
    EXPECT_THAT(explain(spec_table(), "training.tempreature").error().message,
                HasSubstr("did you mean training.temperature?"));
}

TEST(StartingSpec, IsReadAsTheValuesThatItWasGiven) {
    const std::map<std::string, json::value> values{{"/student/model", "folder"},
                                                    {"/dataset/train", "t.jsonl"},
                                                    {"/dataset/sequence_length", 9},
                                                    {"/training/epochs", 2},
                                                    {"/output", "out"}};
    const auto text = starting_spec(spec_table(), values);
    const auto spec = parse_job_spec(without_comments(text));
    ASSERT_TRUE(spec) << describe(spec.error()) << text;
    EXPECT_EQ(spec->student.model, "folder");
    EXPECT_EQ(spec->dataset.sequence_length, 9U);
    EXPECT_FALSE(spec->teacher);
    // Every other field stands in it, commented out.
    for (const auto& field : spec_table().fields) {
        const auto member = "\"" + std::string(field.name()) + "\": ";
        EXPECT_THAT(text, HasSubstr((values.contains(std::string(field.pointer)) ? "" : "// ") + member))
            << field.pointer;
    }
}

TEST(NamedPaths, ThatAreNotThereAreNamed) {
    test::TemporaryFolder folder;
    const auto file = folder.write("one.jsonl", "{}\n").string();
    JobSpec spec;
    spec.dataset.train = {file, (folder.path() / "*.jsonl").string(), (folder.path() / "*.txt").string()};
    spec.dataset.eval = {folder.path().string()};
    spec.student.model = "absent";
    spec.student.tokenizer = file;
    spec.teacher.emplace().ca_file = "absent.pem";
    spec.teachers["math"].model_dir = folder.path().string();
    spec.teachers["code"].model_dir = "absent";
    std::vector<std::string> pointers;
    for (const auto& violation : missing_paths(spec, spec_table())) {
        pointers.push_back(violation.pointer);
    }
    EXPECT_THAT(pointers,
                ::testing::UnorderedElementsAre("/student/model", "/student/tokenizer", "/teacher/ca_file",
                                                "/dataset/train/2", "/dataset/eval", "/teachers/code/model_dir"));
}

}  // namespace
}  // namespace distilld::api
