#include "server/worker/export_owner.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/worker/resume_identity.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

JobSpec spec_of_a_run() {
    JobSpec spec;
    spec.student.model = "student";
    spec.dataset.train = {"data.jsonl"};
    spec.dataset.sequence_length = 8;
    spec.training.max_steps = 10;
    spec.output = "out";
    return spec;
}

class ExportOwner : public ::testing::Test {
  protected:
    std::string refusal(const JobSpec& spec = spec_of_a_run(), const std::string& hash = "hash") {
        const Result<void> taken = check_output(folder_.path(), spec, hash);
        return taken ? "" : taken.error().message;
    }

    test::TemporaryFolder folder_;
};

TEST_F(ExportOwner, AnEmptyOrAbsentFolderMayBeTaken) {
    EXPECT_EQ(refusal(), "");
    EXPECT_TRUE(check_output(folder_ / "absent", spec_of_a_run(), "hash"));
    test::write_bytes(folder_ / "notes.txt", "x");
    test::write_bytes(folder_ / ".model.safetensors.1.2.tmp", "x");
    EXPECT_EQ(refusal(), "");
}

TEST_F(ExportOwner, AModelOfSomebodyElseIsNamed) {
    for (const char* file : {"model-00001-of-00002.safetensors", "config.json"}) {
        test::write_bytes(folder_ / file, "x");
        EXPECT_THAT(refusal(), AllOf(StartsWith("/output: " + (folder_ / file).string() + " belongs to another model"),
                                     HasSubstr("\"overwrite\": true")));
    }
    JobSpec overwriting = spec_of_a_run();
    overwriting.overwrite = true;
    EXPECT_EQ(refusal(overwriting), "");
}

TEST_F(ExportOwner, TheModelOfTheSameRunMayBeReplaced) {
    const std::string identity = make_run_identity(spec_of_a_run(), "hash");
    ASSERT_TRUE(write_export_owner(folder_.path(), {identity, 10}));
    test::write_bytes(folder_ / "config.json", "x");
    EXPECT_EQ(refusal(), "") << "a part of an export that was cut short is known, too";
    ASSERT_TRUE(write_export_owner(folder_.path(), {identity, 10, "abc", {"config.json"}}));
    EXPECT_EQ(refusal(), "");
    EXPECT_THAT(test::read_bytes(folder_ / "distilld.json"),
                HasSubstr(R"("step":10,"weights_sha256":"abc","files":["config.json"])"));

    JobSpec other = spec_of_a_run();
    other.training.seed = 1;
    EXPECT_THAT(refusal(other), HasSubstr("config.json belongs to another model: /training/seed: is 1"));
    EXPECT_THAT(refusal(spec_of_a_run(), "other rows"), HasSubstr("/dataset/train"));
    test::write_bytes(folder_ / "distilld.json", "[]");
    EXPECT_THAT(refusal(), HasSubstr("belongs to another model"));
}

}  // namespace
}  // namespace distilld
