#include "api/spec_fields.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>

#include "api/job_spec_json.hpp"
#include "api/spec_docs.hpp"
#include "api/spec_overrides.hpp"
#include "api/spec_paths.hpp"
#include "api/spec_rules.hpp"
#include "base/json_text.hpp"
#include "tests/unit/api/spec_samples.hpp"

namespace distilld::api {
namespace {

namespace json = boost::json;

using test::grown_table;
using test::GrownSpec;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Which fields a row answers for cannot be left open.
static_assert(!std::is_default_constructible_v<DecidesWeights>);
static_assert(!std::is_default_constructible_v<SpecField>);

/// Optional fields only as far as others need them.
std::string spec_with(const std::vector<Override>& changes) {
    return apply_overrides(R"({"student": {"model": "m"}, "teacher": {"endpoints": ["http://a:1"]},
        "dataset": {"train": "t.jsonl", "sequence_length": 8}, "training": {"max_steps": 3}, "output": "o"})",
                           changes)
        .value();
}

/// What has to stand in the spec for the field to have a place: a section that is not there by default.
std::vector<Override> place_of(const SpecField& field) {
    for (const char* optional : {"/student/lora", "/placement"}) {
        if (field.section() == optional) {
            return {{optional, "{}"}};
        }
    }
    if (field.section() == "/rollout") {
        return {{"/rollout", R"({"endpoints": ["http://b:1"], "prompts": ["p.jsonl"]})"},
                {"/student/lora", "{}"},
                {"/dataset/train", "null"},
                {"/dataset/sequence_length", "1048576"}};
    }
    if (field.pointer == "/student/quantize_modules") {
        return {{"/student/quantization", "ternary"}};
    }
    return {};
}

std::vector<Override> change_to(const SpecField& field, const json::value& value) {
    std::vector<Override> changes = place_of(field);
    changes.emplace_back(std::string(field.pointer), to_text(value));
    if (field.pointer == "/training/epochs") {
        changes.emplace_back("/training/max_steps", "null");
    }
    return changes;
}

/// The other field, with a value, without which this one cannot stand.
std::vector<Override> needed_by(const SpecField& field) {
    if (field.pointer == "/tasks") {
        return {{"/kind", "generate"}, {"/teacher/store", "answers"}};
    }
    if (field.pointer == "/teacher/tokenizer") {
        return {{"/teacher/top_k", "8"}, {"/dataset/packing", "documents"}};
    }
    if (field.pointer == "/training/sgd_momentum") {
        return {{"/training/optimizer", "sgd"}};
    }
    if (field.pointer == "/training/ranks") {
        return {{"/training/gradient_groups", "64"}, {"/training/micro_batches", "64"}};
    }
    if (field.pointer == "/placement/nodes" || field.pointer == "/placement/ranks_per_node") {
        return {{"/training/gradient_groups", "1024"}, {"/training/micro_batches", "1024"}};
    }
    if (field.pointer == "/dataset/overflow") {
        return {{"/dataset/packing", "documents"}};
    }
    if (field.pointer == "/rollout/lmbda") {
        return {{"/dataset/train", R"(["rows.jsonl"])"}};
    }
    if (field.pointer == "/eval/sample_prompts") {
        return {{"/dataset/eval", "held-out.jsonl"}};
    }
    if (field.pointer == "/eval/every_steps") {
        return {{"/eval/command", R"(["judge"])"}};
    }
    return {};
}

/// Fields of a teacher in the process, which endpoints cannot stand beside.
bool is_of_a_local_teacher(const SpecField& field) {
    constexpr std::string_view kFields[] = {"/teacher/model_dir", "/teacher/placement", "/teacher/dtype",
                                            "/teacher/threads"};
    return std::ranges::find(kFields, field.pointer) != std::end(kFields);
}

/// Fields that decide what all others have to be: SampleRules tests them.
bool is_of_samples(const SpecField& field) {
    constexpr std::string_view kFields[] = {"/student/format", "/student/inputs", "/student/outputs",
                                            "/teacher/module", "/teacher/inputs", "/teacher/outputs",
                                            "/dataset/format", "/training/losses"};
    return std::ranges::find(kFields, field.pointer) != std::end(kFields);
}

/// Pointers of the fields that two written specs have differently.
std::set<std::string> differences(const json::value& one, const json::value& other) {
    std::set<std::string> pointers;
    for (const auto& field : spec_table().fields) {
        boost::system::error_code missing;
        const auto* ours = one.find_pointer(field.pointer, missing);
        const auto* theirs = other.find_pointer(field.pointer, missing);
        if ((ours == nullptr) != (theirs == nullptr) || (ours != nullptr && *ours != *theirs)) {
            pointers.emplace(field.pointer);
        }
    }
    return pointers;
}

TEST(SpecFields, EachHasOneRowThatSaysWhatItIs) {
    std::set<std::string_view> pointers;
    for (const auto& field : spec_table().fields) {
        EXPECT_TRUE(pointers.insert(field.pointer).second) << field.pointer;
        EXPECT_FALSE(field.help.empty()) << field.pointer;
        EXPECT_FALSE(field.kind->values().empty()) << field.pointer;
        if (!field.section().empty()) {
            EXPECT_NO_THROW((void)spec_table().section(field.section())) << field.pointer;
        }
    }
    for (const auto& rule : spec_rules()) {
        if (spec_table().field(rule.after) == nullptr) {
            EXPECT_NO_THROW((void)spec_table().section(rule.after)) << rule.after;
        }
    }
}

TEST(SpecFields, EveryFieldIsReadWrittenAndReadAgain) {
    for (const auto& field : spec_table().fields) {
        const auto plain = to_json_object(parse_job_spec(spec_with(place_of(field))).value());
        const auto value = test::other_value(field);
        ASSERT_TRUE(value) << field.pointer << " has only one value";
        if (field.pointer == "/kind" || is_of_samples(field)) {
            continue;  // decides what other fields have to be: JobSpecJson.AGenerateJobTakesATeacherAndADataset…
        }
        auto changes = change_to(field, *value);
        if (is_of_a_local_teacher(field)) {
            changes.insert(changes.begin(), {{"/teacher/endpoints", "null"}, {"/teacher/model_dir", "m"}});
        }
        const auto needed = needed_by(field);
        changes.insert(changes.end(), needed.begin(), needed.end());
        const auto spec = parse_job_spec(spec_with(changes));
        ASSERT_TRUE(spec) << describe(spec.error());
        const auto written = to_json_object(*spec);
        EXPECT_EQ(to_text(json::value(written).at_pointer(field.pointer)), to_text(*value)) << field.pointer;

        // No other field changed with it.
        std::set<std::string> expected{std::string(field.pointer)};
        if (field.pointer == "/training/epochs") {
            expected.insert("/training/max_steps");
        }
        if (is_of_a_local_teacher(field)) {
            expected.insert({"/teacher/endpoints", "/teacher/model_dir"});
        }
        if (field.pointer == "/tasks") {
            expected.insert({"/output", "/training/batch_size"});  // of a generate job
        }
        for (const auto& [pointer, other] : needed) {
            expected.insert(pointer);
        }
        EXPECT_EQ(differences(plain, written), expected);

        const auto again = parse_job_spec(to_json(*spec));
        ASSERT_TRUE(again) << describe(again.error());
        EXPECT_EQ(to_text(to_json_object(*again)), to_text(written)) << field.pointer;
    }
}

TEST(SpecFields, ADefaultIsThatOfTheMember) {
    for (const auto& field : spec_table().fields) {
        const auto plain = to_json_object(parse_job_spec(spec_with(place_of(field))).value());
        const auto initial = field.kind.initial();
        if (!field.required.empty() || !initial) {
            continue;
        }
        EXPECT_EQ(to_text(json::value(plain).at_pointer(field.pointer)), to_text(*initial)) << field.pointer;
        // The default is a good value.
        EXPECT_TRUE(parse_job_spec(spec_with(change_to(field, *initial)))) << field.pointer;
    }
}

TEST(SpecFields, EveryFieldRefusesAnotherTypeByItsPointer) {
    for (const auto& field : spec_table().fields) {
        const auto schema = field.kind->schema();
        const bool is_object = schema.contains("type") && schema.at("type") == "object";
        const auto wrong = is_object ? json::value(json::array{}) : json::value(json::object{});
        const auto spec = parse_job_spec(spec_with(change_to(field, wrong)));
        ASSERT_FALSE(spec) << field.pointer;
        EXPECT_THAT(describe(spec.error()), HasSubstr(std::string(field.pointer) + ": ")) << field.pointer;
        EXPECT_EQ(spec.error().violations.front().code, "wrong_type") << field.pointer;
    }
}

TEST(SpecFields, ADeviceIsNamed) {
    for (const auto* good : {"auto", "cpu", "cuda", "cuda:0", "cuda:12"}) {
        EXPECT_EQ(parse_job_spec(spec_with({{"/student/device", good}})).value().student.device, good);
    }
    for (const auto* bad : {"\"\"", "gpu", "cuda:", "cuda:01", "cuda:100", "cuda:-1", "cpu:0", "CUDA", "xcpu"}) {
        const auto spec = parse_job_spec(spec_with({{"/student/device", bad}}));
        ASSERT_FALSE(spec) << bad;
        EXPECT_THAT(describe(spec.error()), ::testing::StartsWith("/student/device: must ")) << bad;
    }
}

TEST(SpecSections, OneStandsWithinAnother) {
    EXPECT_FALSE(parse_job_spec(spec_with({})).value().student.lora);
    EXPECT_FALSE(to_json_object(parse_job_spec(spec_with({})).value()).at("student").as_object().contains("lora"));
    const auto spec = parse_job_spec(spec_with({{"/student/lora/r", "4"}})).value();
    ASSERT_TRUE(spec.student.lora);
    EXPECT_EQ(spec.student.lora->r, 4U);
    EXPECT_EQ(to_text(to_json_object(spec).at("student").at("lora")),
              R"({"r":4,"alpha":16,"dropout":0,"merge":false})");
    const auto refusal = [](const std::string& pointer, const std::string& value) {
        return describe(parse_job_spec(spec_with({{pointer, value}})).error());
    };
    EXPECT_EQ(refusal("/student/lora", "3"), "/student/lora: an object is expected, not a number");
    EXPECT_EQ(refusal("/student/lora/rank", "3"),
              "/student/lora/rank: unknown field 'rank'; did you mean /student/lora/r?");
    EXPECT_EQ(refusal("/student/lora/dropot", "3"),
              "/student/lora/dropot: unknown field 'dropot'; did you mean \"dropout\"?");
    EXPECT_EQ(refusal("/lora", "{}"), "/lora: unknown field 'lora'; did you mean /student/lora?");
    EXPECT_EQ(refusal("/student/lora/dropout", "1"),
              "/student/lora/dropout: 1 is out of range: it must be at least 0 and below 1");
}

TEST(SpecSections, OneWithinAnotherIsDocumented) {
    EXPECT_THAT(markdown_table(spec_table(), "/student/lora"), HasSubstr("| `student.lora.r` | 1–65536 | 8 | "));
    EXPECT_THAT(markdown_table(spec_table(), "/student"), ::testing::Not(HasSubstr("lora.r")));
    const json::value schema = job_spec_schema(spec_table());
    EXPECT_EQ(schema.at_pointer("/properties/student/properties/lora/properties/r/maximum"), 65536);
    EXPECT_FALSE(schema.at("properties").as_object().contains("lora"));
}

TEST(SpecRules, AdaptersAreOfABaseAsItIs) {
    const auto refusal = [](const std::vector<Override>& changes) {
        auto all = changes;
        all.emplace_back("/student/lora", "{}");
        return describe(parse_job_spec(spec_with(all)).error());
    };
    EXPECT_THAT(refusal({{"/student/init", "random"}}),
                ::testing::StartsWith("/student/lora: adapts existing weights"));
    EXPECT_THAT(refusal({{"/student/config", "{}"}}),
                ::testing::StartsWith("/student/lora: adapts the model as it is"));
}

TEST(SpecRules, WhatIsQuantizedLearns) {
    const auto refusal = [](const std::vector<Override>& changes) {
        return describe(parse_job_spec(spec_with(changes)).error());
    };
    EXPECT_EQ(refusal({{"/student/quantize_modules", R"(["q_proj"])"}}),
              "/student/quantize_modules: names modules to quantize: give quantization too");
    EXPECT_THAT(refusal({{"/student/quantization", "ternary"}, {"/student/lora", "{}"}}),
                ::testing::StartsWith("/student/quantization: applies to trained weights, but lora"));
}

TEST(SpecRules, RanksOfAClusterShareTheGroups) {
    const auto refusal = [](const std::vector<Override>& changes) {
        return describe(parse_job_spec(spec_with(changes)).error());
    };
    std::vector<Override> four{{"/placement/nodes", "2"},
                               {"/placement/ranks_per_node", "2"},
                               {"/training/micro_batches", "8"},
                               {"/training/gradient_groups", "4"}};
    const auto spec = parse_job_spec(spec_with(four));
    ASSERT_TRUE(spec) << describe(spec.error());
    EXPECT_EQ(spec->placement->ranks(), 4U);
    four.back().second = "2";
    EXPECT_THAT(refusal(four),
                ::testing::StartsWith("/training/gradient_groups: is 2, but must be a multiple of the 4"));
    four.back().second = "4";
    four.emplace_back("/training/ranks", "2");
    EXPECT_EQ(refusal(four),
              "/training/ranks: is 2, but /placement/nodes times /placement/ranks_per_node is 4: give the same number, "
              "or leave it out");
    four.back().second = "4";
    EXPECT_TRUE(parse_job_spec(spec_with(four)));
    EXPECT_EQ(refusal({{"/placement/nodes", "512"}, {"/placement/ranks_per_node", "4"}}),
              "/placement/nodes: gives 2048 ranks with /placement/ranks_per_node, but at most 1024 train together");
    EXPECT_EQ(refusal({{"/kind", "generate"}, {"/teacher/store", "s"}, {"/placement/ranks_per_node", "2"}}),
              "/placement/ranks_per_node: gives several ranks, but a generate job is one process: leave it out");
}

TEST(Placement, OptionsAreTextsByName) {
    const auto spec =
        parse_job_spec(spec_with({{"/placement", R"({"options": {"account": "lab", "exclusive": ""}})"}}));
    ASSERT_TRUE(spec) << describe(spec.error());
    EXPECT_EQ(spec->placement->options, (std::map<std::string, std::string>{{"account", "lab"}, {"exclusive", ""}}));
    EXPECT_EQ(spec->placement->ranks(), 1U);
    EXPECT_FALSE(parse_job_spec(spec_with({}))->placement);
    const auto refusal = [](const std::string& options) {
        return describe(parse_job_spec(spec_with({{"/placement", "{\"options\": " + options + "}"}})).error());
    };
    EXPECT_EQ(refusal(R"({"--account": "a"})"),
              "/placement/options: has the name '--account'; names have small letters, digits and dashes");
    EXPECT_THAT(refusal(R"({"account=x --uid": "a"})"), HasSubstr("has the name"));
    EXPECT_THAT(refusal(R"({"": "a"})"), HasSubstr("has the name"));
    EXPECT_EQ(refusal(R"({"account": 3})"), "/placement/options: has at 'account' a number, not a text");
    EXPECT_THAT(refusal(R"({"account": "a\nb"})"), HasSubstr("a control character"));
    EXPECT_THAT(refusal("{\"account\": \"" + std::string(257, 'a') + "\"}"), HasSubstr("more than 256 bytes"));
    std::string many = "{\"a\": \"\"";
    for (int i = 0; i < 32; ++i) {
        many += ", \"a" + std::to_string(i) + "\": \"\"";
    }
    EXPECT_EQ(refusal(many + "}"), "/placement/options: has more than 32 options");
    EXPECT_THAT(describe(parse_job_spec(spec_with({{"/placement/partition", "a b"}})).error()),
                HasSubstr("/placement/partition: "));
}

TEST(MadeUpField, IsReadAndRefused) {
    GrownSpec spec;
    auto read = read_job_spec(spec_with({{"/training/label_smoothing", "0.25"}, {"/dataset/word_list", "words"}}), spec,
                              grown_table());
    EXPECT_THAT(read.violations, IsEmpty()) << describe(read);
    EXPECT_EQ(spec.label_smoothing, 0.25);
    EXPECT_EQ(spec.word_list, "words");

    read = read_job_spec(spec_with({{"/training/label_smoothing", "2"}}), spec, grown_table());
    EXPECT_EQ(describe(read), "/training/label_smoothing: 2 is out of range: it must be at least 0 and at most 0.5");
    // The program itself does not know it.
    EXPECT_THAT(describe(parse_job_spec(spec_with({{"/training/label_smoothing", "0.25"}})).error()),
                HasSubstr("/training/label_smoothing: unknown field"));
}

TEST(MadeUpField, IsSuggested) {
    GrownSpec spec;
    EXPECT_THAT(describe(read_job_spec(spec_with({{"/training/label_smoothin", "0"}}), spec, grown_table())),
                HasSubstr("did you mean \"label_smoothing\"?"));
    EXPECT_THAT(describe(read_job_spec(spec_with({{"/label_smoothing", "0"}}), spec, grown_table())),
                HasSubstr("did you mean /training/label_smoothing?"));
}

TEST(MadeUpField, IsWritten) {
    GrownSpec spec;
    auto written = to_json_object(spec, grown_table());
    EXPECT_EQ(written.at("training").at("label_smoothing"), 0.125);
    EXPECT_FALSE(written.at("dataset").as_object().contains("word_list"));
    spec.label_smoothing = 0.5;
    spec.word_list = "words";
    make_paths_absolute(spec, "/base", grown_table());
    written = to_json_object(spec, grown_table());
    EXPECT_EQ(written.at("training").at("label_smoothing"), 0.5);
    EXPECT_EQ(written.at("dataset").at("word_list"), "/base/words");
}

TEST(MadeUpField, IsDocumented) {
    EXPECT_THAT(markdown_table(grown_table(), "/training"),
                HasSubstr("| `training.label_smoothing` | 0–0.5 | 0.125 | made up for a test |\n"));
    EXPECT_THAT(markdown_table(grown_table(), "/dataset"),
                HasSubstr("| `dataset.word_list` | text file | none | made up, too |\n"));
    const json::value schema = job_spec_schema(grown_table());
    EXPECT_EQ(to_text(schema.at_pointer("/properties/training/properties/label_smoothing")),
              R"({"type":"number","minimum":0,"maximum":0.5,"default":0.125,"description":"made up for a test"})");
    EXPECT_THAT(job_spec_schema_yaml(grown_table()),
                HasSubstr("            label_smoothing: { type: number, minimum: 0, maximum: 0.5, default: 0.125, "
                          "description: 'made up for a test' }\n"));
}

}  // namespace
}  // namespace distilld::api
