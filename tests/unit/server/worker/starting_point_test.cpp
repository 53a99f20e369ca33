#include "server/worker/starting_point.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files/files.hpp"
#include "base/sha256.hpp"
#include "models/checkpoint/manifest.hpp"
#include "server/worker/resume_identity.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

namespace fs = std::filesystem;

JobSpec spec_of_a_run() {
    JobSpec spec;
    spec.student.model = "/models/student";
    spec.dataset.train = {"data.jsonl"};
    spec.dataset.sequence_length = 8;
    spec.training.max_steps = 10;
    spec.output = "out";
    return spec;
}

class TextSnapshot final : public StudentSnapshot {
  public:
    TextSnapshot(std::uint64_t step, std::string identity) : step_(step), identity_(std::move(identity)) {}
    Result<void> write_checkpoint(const fs::path& folder) const override {
        fs::create_directory(folder);
        models::CheckpointManifest manifest;
        manifest.run.step = step_;
        manifest.run.spec_json = identity_;
        if (Result<void> written = write_file_atomically(folder / "data", "x"); !written) {
            return written;
        }
        manifest.files["data"] = sha256_file(folder / "data").value();
        return write_checkpoint_manifest(folder, manifest);
    }
    Result<std::vector<fs::path>> write_model(const fs::path&) const override { return {}; }

  private:
    std::uint64_t step_;
    std::string identity_;
};

class StartingPointTest : public ::testing::Test {
  protected:
    fs::path commit(std::uint64_t step, const JobSpec& spec = spec_of_a_run()) {
        return store_.commit(step, TextSnapshot(step, make_run_identity(spec, "hash"))).value();
    }
    Result<StartingPoint> find(JobSpec spec, bool ordered = false) {
        return find_starting_point(store_, spec, "hash", ordered);
    }
    std::string refusal(const JobSpec& spec, bool ordered = false) {
        const auto start = find(spec, ordered);
        return start ? "" : start.error().message;
    }
    std::optional<Dtype> kept_dtype(const JobSpec& spec, bool ordered) {
        const auto kept = decisions_to_keep(store_, spec, ordered);
        return kept ? std::optional(kept->student.dtype) : std::nullopt;
    }
    void expect_untouched() {
        ASSERT_TRUE(store_.newest().value().folder);
        EXPECT_EQ(store_.newest().value().folder->filename(), "step-00000004");
    }

    test::TemporaryFolder folder_;
    models::CheckpointStore store_{folder_ / "checkpoints", 2};
};

TEST_F(StartingPointTest, F12ADamagedNewestIsSetAsideAndItsStepIsWrittenAgain) {
    commit(2);
    const fs::path four = commit(4);
    std::string state = test::read_bytes(four / models::kManifestFile);
    state.replace(state.find("\"adam_steps\":") + 13, 1, "7");
    test::write_bytes(four / models::kManifestFile, state);
    const StartingPoint start = find(spec_of_a_run()).value();
    EXPECT_EQ(start.resume_from, folder_ / "checkpoints" / "step-00000002");
    EXPECT_TRUE(fs::exists(four)) << "nothing is changed yet";
    std::vector<std::string> said;
    const EmitEvent emit = [&said](const WorkerEvent& event) { said.push_back(std::get<LogEvent>(event).message); };
    ASSERT_TRUE(set_damaged_aside(store_, start.damaged, emit));
    ASSERT_EQ(said.size(), 1U);
    EXPECT_NE(said[0].find("step-00000004.damaged"), std::string::npos) << said[0];
    EXPECT_EQ(test::read_bytes(folder_ / "checkpoints" / "step-00000004.damaged" / models::kManifestFile), state);
    EXPECT_EQ(commit(4), four);
    EXPECT_EQ(find(spec_of_a_run()).value().resume_from, four);
}

TEST_F(StartingPointTest, WithoutCheckpointsTheRunBegins) {
    for (const bool ordered : {false, true}) {
        const StartingPoint start = find(spec_of_a_run(), ordered).value();
        EXPECT_FALSE(start.resume_from);
        EXPECT_FALSE(start.replaces);
        EXPECT_THAT(start.warnings, IsEmpty());
    }
}

TEST_F(StartingPointTest, TheSameSpecGoesOnUnasked) {
    commit(2);
    commit(4);
    EXPECT_EQ(find(spec_of_a_run()).value().resume_from, folder_ / "checkpoints" / "step-00000004");
    JobSpec prolonged = spec_of_a_run();
    prolonged.training.max_steps = 20;
    prolonged.overwrite = true;
    const StartingPoint start = find(prolonged).value();
    EXPECT_TRUE(start.resume_from);
    EXPECT_FALSE(start.replaces);
}

TEST_F(StartingPointTest, TheArithmeticOfTheRunIsKeptWhereTheSpecLeavesItToTheMachine) {
    const JobSpec open = spec_of_a_run();
    EXPECT_EQ(kept_dtype(open, false), std::nullopt) << "no checkpoint";
    for (const Dtype began_with : {Dtype::fp32, Dtype::bf16}) {
        JobSpec run = spec_of_a_run();
        run.student.dtype = began_with;
        commit(4, run);
        EXPECT_EQ(kept_dtype(open, false), began_with);
        EXPECT_EQ(kept_dtype(run, false), began_with);
    }
    JobSpec anew = open;
    anew.resume = false;
    EXPECT_EQ(kept_dtype(anew, false), std::nullopt);
    EXPECT_EQ(kept_dtype(anew, true), Dtype::bf16) << "a job that was interrupted goes on";
    JobSpec other = open;
    other.training.learning_rate = 0.5;
    other.overwrite = true;
    EXPECT_EQ(kept_dtype(other, false), std::nullopt) << "another run";
}

TEST_F(StartingPointTest, ARunKeepsWhatBecomesOfLongDocuments) {
    JobSpec open = spec_of_a_run();
    open.dataset.packing = Packing::documents;
    commit(2, open);  // before there was the field: what did not fit was left out
    EXPECT_EQ(decisions_to_keep(store_, open, false)->dataset.overflow, Overflow::truncate);
    JobSpec split = open;
    split.dataset.overflow = Overflow::split;
    EXPECT_EQ(decisions_to_keep(store_, split, false)->dataset.overflow, Overflow::split) << "as the spec says";
    commit(4, split);
    commit(6, split);  // two are kept
    EXPECT_EQ(decisions_to_keep(store_, open, false)->dataset.overflow, Overflow::split);
}

TEST_F(StartingPointTest, AnotherRunsCheckpointsAreNamedAndStay) {
    commit(4);
    JobSpec other = spec_of_a_run();
    other.training.learning_rate = 0.5;
    for (const bool ordered : {false, true}) {
        EXPECT_THAT(refusal(other, ordered), AllOf(StartsWith((folder_ / "checkpoints" / "step-00000004").string() +
                                                              ": /training/learning_rate"),
                                                   HasSubstr("\"overwrite\": true")));
    }
    expect_untouched();
    other.overwrite = true;
    const StartingPoint start = find(other).value();
    EXPECT_TRUE(start.replaces);
    EXPECT_FALSE(start.resume_from);
    expect_untouched();
}

TEST_F(StartingPointTest, FromTheStartIsRefusedWhereThereAreCheckpoints) {
    commit(4);
    JobSpec anew = spec_of_a_run();
    anew.resume = false;
    EXPECT_THAT(refusal(anew), HasSubstr("step-00000004: /resume: is false, but there are checkpoints up to step 4"));
    EXPECT_TRUE(find(anew, true).value().resume_from) << "a job that was interrupted goes on from its own";
    anew.overwrite = true;
    const StartingPoint start = find(anew).value();
    EXPECT_TRUE(start.replaces);
    EXPECT_FALSE(start.resume_from);
    expect_untouched();
}

TEST_F(StartingPointTest, AnotherStudentIsNotTakenForTheSameUnasked) {
    commit(4);
    JobSpec moved = spec_of_a_run();
    moved.student.model = "/models/other";
    EXPECT_THAT(refusal(moved), HasSubstr("/student/model: is \"/models/other\", but the checkpoint was made with"));
    EXPECT_TRUE(find(moved, true).value().resume_from);
    moved.overwrite = true;
    EXPECT_TRUE(find(moved, true).value().replaces) << "it was stopped before it had replaced them";
    JobSpec random = spec_of_a_run();
    random.student.init = StudentInit::random;
    EXPECT_THAT(refusal(random), HasSubstr("/student/init"));
}

TEST_F(StartingPointTest, DamagedCheckpointsAreToldOfAndThoseOfAnotherRunStay) {
    const fs::path four = commit(4);
    test::write_bytes(four / "data", "y");
    const StartingPoint start = find(spec_of_a_run()).value();
    EXPECT_FALSE(start.resume_from);
    EXPECT_FALSE(start.replaces);
    EXPECT_THAT(start.warnings, ElementsAre(HasSubstr("step-00000004/data is damaged")));
    JobSpec other = spec_of_a_run();
    other.training.seed = 7;
    EXPECT_THAT(refusal(other), HasSubstr("/training/seed"));
}

TEST_F(StartingPointTest, TheBatchSizeOfTheCheckpointIsTakenOver) {
    JobSpec probed = spec_of_a_run();
    probed.training.batch_size = 16;
    commit(4, probed);
    JobSpec open = spec_of_a_run();
    open.training.batch_size_auto = true;
    ASSERT_TRUE(find_starting_point(store_, open, "hash", false));
    EXPECT_EQ(open.training.batch_size, 16U);
    EXPECT_FALSE(open.training.batch_size_auto);
}

TEST(CheckLength, ARunThatIsShorterThanItsCheckpointIsRefused) {
    JobSpec spec = spec_of_a_run();
    EXPECT_TRUE(check_length(spec, 10, 10, "F"));
    EXPECT_TRUE(check_length(spec, 10, 0, ""));
    const auto refused = check_length(spec, 10, 20, "F/step-00000020");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().kind, ErrorKind::invalid_input);
    EXPECT_EQ(refused.error().message, "/training/max_steps: 10 is below the checkpoint's step 20 in F/step-00000020");
    spec.training.max_steps.reset();
    spec.training.epochs = 0.5;
    EXPECT_THAT(check_length(spec, 10, 20, "F").error().message,
                StartsWith("/training/epochs: come to 10 steps, which is below the checkpoint's step 20"));
}

}  // namespace
}  // namespace distilld
