#include "api/spec_docs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "api/job_spec_json.hpp"
#include "api/openapi.hpp"
#include "tests/support/paths.hpp"

namespace distilld::api {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string read_text(const std::filesystem::path& file) {
    std::ifstream stream(file);
    std::ostringstream text;
    text << stream.rdbuf();
    return text.str();
}

/// Without its last field.
SpecTable shrunk_table() {
    auto table = spec_table();
    std::erase_if(table.fields, [](const SpecField& field) { return field.pointer == "/output"; });
    return table;
}

TEST(SpecDocs, WhatIsCheckedInSaysWhatTheTableSays) {
    const auto markdown = read_text(test::source_dir() / "docs/job-spec.md");
    EXPECT_EQ(with_field_tables(markdown, spec_table()).value(), markdown) << "run distilld-spec-docs";
    const auto yaml = read_text(test::source_dir() / "api/openapi.yaml");
    EXPECT_EQ(with_job_spec_schema(yaml, spec_table()).value(), yaml) << "run distilld-spec-docs";
    EXPECT_EQ(openapi_yaml(), yaml);
}

TEST(SpecDocs, AnotherTableIsSeen) {
    const auto markdown = read_text(test::source_dir() / "docs/job-spec.md");
    EXPECT_THAT(markdown, HasSubstr("| `output` |"));
    EXPECT_THAT(with_field_tables(markdown, shrunk_table()).value(), Not(HasSubstr("| `output` |")));
    const auto yaml = read_text(test::source_dir() / "api/openapi.yaml");
    EXPECT_THAT(with_job_spec_schema(yaml, shrunk_table()).value(),
                HasSubstr("else: { required: [student, training], properties:"));
}

TEST(SpecDocs, WhatStandsAroundStays) {
    const auto text = with_job_spec_schema(
        "before\n    # JobSpec, by distilld-spec-docs\nold lines\n    # end of JobSpec\nafter\n", spec_table());
    ASSERT_TRUE(text);
    EXPECT_THAT(*text, ::testing::StartsWith("before\n    # JobSpec, by distilld-spec-docs\n    JobSpec:\n"));
    EXPECT_THAT(*text, ::testing::EndsWith("    # end of JobSpec\nafter\n"));
    EXPECT_THAT(*text, Not(HasSubstr("old lines")));
}

TEST(SpecDocs, AMissingMarkerIsAnError) {
    EXPECT_THAT(with_field_tables("# The job spec\n", spec_table()).error().message,
                HasSubstr("<!-- fields of document -->"));
    EXPECT_FALSE(with_job_spec_schema("    # JobSpec, by distilld-spec-docs\n", spec_table()));
}

TEST(SpecDocs, RowsSayValuesAndDefaults) {
    const auto training = markdown_table(spec_table(), "/training");
    EXPECT_THAT(training, HasSubstr("| `training.learning_rate` | 0–100 | 0.0001 | "));
    EXPECT_THAT(training, HasSubstr("| `training.seed` | 0–2⁶⁴−1 | 42 | "));
    EXPECT_THAT(training, HasSubstr("| `training.batch_size` | 1–65536, `\"auto\"` | 1 | "));
    EXPECT_THAT(training, HasSubstr("| `training.threads` | 0–4096 | 0 = all cores of the slot | "));
    EXPECT_THAT(training, HasSubstr("| `training.epochs` | above 0, at most 10⁶ | this or "));
    EXPECT_THAT(markdown_table(spec_table(), ""), HasSubstr("| `output` | folder | required | "));
    EXPECT_THAT(markdown_table(spec_table(), "/student"),
                HasSubstr("| `\"pretrained\"`, `\"random\"` | `\"pretrained\"` |"));
}

TEST(SpecDocs, YamlHoldsNoTextThatIsTakenForSomethingElse) {
    const auto yaml = job_spec_schema_yaml(spec_table());
    EXPECT_THAT(yaml, HasSubstr("enum: [auto, fp32, bf16, fp64], default: auto"));
    EXPECT_THAT(yaml, HasSubstr("default: 1.0e-8"));
    EXPECT_THAT(yaml, HasSubstr("description: 'keep the folder''s weights, or draw new ones'"));
    EXPECT_THAT(yaml, HasSubstr("oneOf: [{ required: [max_steps] }, { required: [epochs] }]"));
    EXPECT_THAT(yaml, HasSubstr("kd_ratio: { type: number, minimum: 0, maximum: 1, description:"))
        << "its default depends on the teacher";
}

TEST(Examples, AreValidSpecs) {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(test::source_dir() / "examples")) {
        if (entry.path().extension() != ".json") {
            continue;
        }
        const auto parsed = parse_job_spec(read_text(entry.path()));
        EXPECT_TRUE(parsed) << entry.path() << ": " << describe(parsed.error());
        ++count;
    }
    EXPECT_GE(count, 3U);
}

}  // namespace
}  // namespace distilld::api
