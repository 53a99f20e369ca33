#include "server/cli/next_step.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.hpp"

namespace distilld::cli {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class NextStep : public testing::Test {
  protected:
    /// A folder of the output with a tokenizer.
    std::string made(const std::string& name) {
        std::filesystem::create_directories(folder_ / name);
        std::ofstream(folder_ / name / "tokenizer.json") << "{}";
        return (folder_ / name).string();
    }

    test::TemporaryFolder folder_;
    JobSpec spec_;
};

TEST_F(NextStep, NamesTheFolderAndACommandThatTakesIt) {
    const auto output = made("student");
    const auto step = next_step(spec_, output);
    EXPECT_THAT(step, StartsWith("the student is in " + output + " (docs/use-the-student.md); try: distilld teacher " +
                                 output + " and curl http://127.0.0.1:8600/v1/completions -d '{"));
    spec_.student.lora.emplace().merge = true;
    EXPECT_THAT(next_step(spec_, output), StartsWith("the student is in " + output + "/merged"));
    made("student/merged");
    EXPECT_THAT(next_step(spec_, output), HasSubstr("distilld teacher " + output + "/merged and curl"));
}

TEST_F(NextStep, AdaptersAndTernaryWeightsHavePlacesOfTheirOwn) {
    const auto output = made("it's mine");
    const std::string escaped = (folder_ / "it'\\''s mine").string();
    spec_.student.lora.emplace();
    EXPECT_THAT(next_step(spec_, output),
                AllOf(StartsWith("the adapter is in " + output), HasSubstr("teacher '" + escaped + "' and curl")));
    spec_.student.lora.reset();
    spec_.student.quantization = Quantization::ternary;
    const auto ternary = made("it's mine/ternary");
    EXPECT_THAT(next_step(spec_, output), AllOf(HasSubstr(ternary), HasSubstr("pipeline")));
}

TEST_F(NextStep, WithoutATokenizerNoCommandIsPromised) {
    EXPECT_THAT(next_step(spec_, (folder_ / "student").string()),
                EndsWith("student, without a tokenizer (docs/use-the-student.md)"));
}

TEST_F(NextStep, AnswersAreForAStudent) {
    spec_.kind = JobKind::generate;
    EXPECT_THAT(next_step(spec_, "/answers"), AllOf(HasSubstr("/answers (docs/store.md)"), HasSubstr("teacher.store")));
}

}  // namespace
}  // namespace distilld::cli
