#include "api/spec_explain.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

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

TEST(SpecComments, CommasBehindTheLastMemberBecomeBlanks) {
    EXPECT_EQ(without_comments(R"({"a": [1, 2,], "b": {"c": ",}",},})"), R"({"a": [1, 2 ], "b": {"c": ",}" } })");
    EXPECT_EQ(without_comments("{\"a\": 1, // one\n}"), "{\"a\": 1        \n}");
    // These are mistakes.
    EXPECT_EQ(without_comments("[,]"), "[,]");
    EXPECT_EQ(without_comments("{,}"), "{,}");
    EXPECT_EQ(without_comments("[1,,]"), "[1,,]");
}

TEST(SpecExplain, AFieldByAnyOfItsNames) {
    const auto text = explain(spec_table(), "training.micro_batches").value();
    EXPECT_THAT(text, StartsWith("training.micro_batches\n  meaning    micro-batches per optimizer step."));
    EXPECT_THAT(text, HasSubstr("  values     1–65536, \"auto\"\n  default    1\n  on resume  must be the same\n"));
    EXPECT_EQ(explain(spec_table(), "/training/micro_batches").value(), text);
    EXPECT_EQ(explain(spec_table(), "micro_batches").value(), text);
}

TEST(SpecExplain, EachFieldOfANameThatSeveralHave) {
    EXPECT_THAT(explain(spec_table(), "threads").value(),
                ::testing::AllOf(StartsWith("teacher.threads\n"), HasSubstr("\n\ntraining.threads\n")));
}

TEST(SpecExplain, AllFieldsOfASectionAndOfTheWhole) {
    EXPECT_THAT(explain(spec_table(), "checkpoint").value(), StartsWith("checkpoint.every_steps  steps between"));
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

TEST(SpecExplain, WhatOtherProgramsCallAField) {
    EXPECT_THAT(explain(spec_table(), "num_epochs").error().message, HasSubstr("did you mean training.epochs?"));
    EXPECT_THAT(explain(spec_table(), "training.lr").error().message,
                HasSubstr("did you mean training.learning_rate?"));
    const auto read = parse_job_spec(R"({"training": {"lr": 1, "num_train_epochs": 2, "max_length": 3}})");
    ASSERT_FALSE(read);
    const auto said = describe(read.error());
    EXPECT_THAT(said, HasSubstr("/training/lr: unknown field 'lr'; did you mean /training/learning_rate?"));
    EXPECT_THAT(said, HasSubstr("/training/num_train_epochs: unknown field 'num_train_epochs'; did you mean "
                                "/training/epochs?"));
    EXPECT_THAT(said, HasSubstr("did you mean /dataset/sequence_length?"));
}

TEST(SpecFields, ThatOthersCallSoAreCalledSoOnce) {
    std::set<std::string_view> seen;
    for (const auto& field : spec_table().fields) {
        for (const auto name : field.also_known_as) {
            EXPECT_TRUE(seen.insert(name).second) << name;
        }
    }
    EXPECT_GT(seen.size(), 20U);
    for (const auto& field : spec_table().fields) {
        EXPECT_FALSE(seen.contains(field.name())) << field.name();
    }
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
    EXPECT_FALSE(spec->teacher());
    // Every other field stands in it, commented out.
    for (const auto& field : spec_table().fields) {
        const auto member = "\"" + std::string(field.name()) + "\": ";
        EXPECT_THAT(text, HasSubstr((values.contains(std::string(field.pointer)) ? "" : "// ") + member))
            << field.pointer;
    }
}

/// The lines of a text.
std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
        lines.push_back(line);
    }
    return lines;
}

std::string joined(const std::vector<std::string>& lines) {
    std::string text;
    for (const auto& line : lines) {
        text += line + "\n";
    }
    return text;
}

/// The line without its first "// ".
std::string uncommented(const std::string& line) {
    const auto at = line.find("// ");
    return line.substr(0, at) + line.substr(at + 3);
}

/// A line of JSON that is commented out, and not a sentence.
bool is_left_out(const std::string& line) {
    return std::regex_match(line, std::regex(R"( *// +("[a-z_0-9]+": .*|\},))"));
}

std::string codes_of(const SpecViolations& found) {
    std::string codes;
    for (const auto& one : found.violations) {
        codes += one.code + " ";
    }
    return codes;
}

TEST(StartingSpec, StaysJsonWhateverIsUncommented) {
    const std::map<std::string, json::value> values{{"/student/model", "folder"},
                                                    {"/dataset/train", "t.jsonl"},
                                                    {"/dataset/sequence_length", 9},
                                                    {"/training/epochs", 2},
                                                    {"/output", "out"}};
    const auto lines = lines_of(starting_spec(spec_table(), values));
    auto all = lines;
    std::size_t blocks = 0;
    for (std::size_t i = 0; i < lines.size(); ++i) {
        if (!is_left_out(lines[i])) {
            continue;
        }
        auto changed = lines;
        const bool block = lines[i].ends_with("{");
        const auto indent = lines[i].find('/');
        for (auto end = i; end < lines.size(); ++end) {
            changed[end] = uncommented(lines[end]);
            if (!block || lines[end] == std::string(indent, ' ') + "// },") {
                break;
            }
        }
        blocks += block ? 1 : 0;
        all[i] = uncommented(lines[i]);
        if (lines[i].ends_with("},")) {
            continue;  // the end of a block, which is uncommented as a whole
        }
        const auto spec = parse_job_spec(without_comments(joined(changed)));
        const auto codes = spec ? std::string() : codes_of(spec.error());
        EXPECT_THAT(codes, ::testing::Not(HasSubstr("malformed_json"))) << lines[i];
        if (!lines[i].ends_with(": null,")) {
            EXPECT_THAT(codes, ::testing::Not(HasSubstr("wrong_type"))) << lines[i];
        }
        if (lines[i].find("\"lora\"") != std::string::npos) {
            ASSERT_TRUE(spec) << describe(spec.error()) << joined(changed);
            EXPECT_TRUE(spec->student.lora);
        }
    }
    EXPECT_GE(blocks, 2U);
    // And all of them at once.
    const auto whole = parse_json_text(without_comments(joined(all)), 16);
    EXPECT_TRUE(whole) << whole.error().reason << joined(all);
}

TEST(NamedPaths, ThatAreNotThereAreNamed) {
    test::TemporaryFolder folder;
    const auto file = folder.write("one.jsonl", "{}\n").string();
    JobSpec spec;
    spec.dataset.train = {file, (folder.path() / "*.jsonl").string(), (folder.path() / "*.txt").string()};
    spec.dataset.eval = {folder.path().string()};
    spec.student.model = "absent";
    spec.student.tokenizer = file;
    spec.teachers[""].ca_file = "absent.pem";
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

TEST(NamedPaths, ThatLookLikeAModelOfTheHubAreToBeDownloaded) {
    EXPECT_EQ(hub_hint("Qwen/Qwen3-0.6B"),
              "; a model of the Hugging Face Hub is downloaded first: hf download Qwen/Qwen3-0.6B --local-dir "
              "models/Qwen3-0.6B");
    for (const char* path : {"model", "/a/b", "./b", "../b", "a/b/c", "a/"}) {
        EXPECT_EQ(hub_hint(path), "") << path;
    }
    JobSpec spec;
    spec.student.model = "Qwen/Qwen3-0.6B";
    EXPECT_THAT(missing_paths(spec, spec_table()).front().detail, HasSubstr("hf download Qwen/Qwen3-0.6B"));
}

}  // namespace
}  // namespace distilld::api
