#include "models/checkpoint/store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <boost/json.hpp>
#include <cmath>
#include <csignal>
#include <fstream>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/files/files.hpp"
#include "base/sha256.hpp"
#include "models/checkpoint/manifest.hpp"
#include "tests/support/confined_child.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld::models {
namespace {

using test::read_bytes;
using test::TemporaryFolder;
using test::write_bytes;

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// Two files and a manifest; or a failure half way.
class TextSnapshot final : public StudentSnapshot {
  public:
    explicit TextSnapshot(std::string text, bool fails = false) : text_(std::move(text)), fails_(fails) {}

    Result<void> write_checkpoint(const fs::path& folder) const override {
        if (const auto made = make_new_folder(folder); !made) {
            return made.error();
        }
        if (const auto written = write_file_atomically(folder / "data", text_); !written) {
            return written.error();
        }
        if (fails_) {
            return io_error("cannot write " + (folder / "more").string() + ": No space left on device");
        }
        CheckpointManifest manifest;
        manifest.run.step = 7;
        manifest.run.spec_json = R"({"name":"é \" \\"})";
        manifest.run.last.step = 7;
        manifest.run.last.loss = 1.25;
        manifest.run.last.grad_norm = std::numeric_limits<double>::infinity();
        manifest.run.last.nonfinite_steps = 3;
        manifest.adam_steps = 6;
        manifest.files["data"] = sha256_file(folder / "data").value();
        return write_checkpoint_manifest(folder, manifest);
    }
    Result<std::vector<fs::path>> write_model(const fs::path&) const override { return {}; }

  private:
    std::string text_;
    bool fails_;
};

std::vector<std::string> names(const fs::path& folder) {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder)) {
        found.push_back(entry.path().filename().string());
    }
    std::sort(found.begin(), found.end());
    return found;
}

class CheckpointStoreTest : public testing::Test {
  protected:
    TemporaryFolder temporary_;
    fs::path folder_ = temporary_ / "out" / "checkpoints";
    CheckpointStore store_{folder_, 2};
};

TEST_F(CheckpointStoreTest, F3CheckpointsLieWhereTheyMayAndNowhereElse) {
    const fs::path base = fs::canonical(temporary_.path());
    const fs::path checkpoints = base / "root/checkpoints";
    fs::create_directories(base / "root");
    fs::create_directories(base / "outside");
    const FileRule rule{.roots = {base / "root"}};
    const auto all = [&]() -> std::string {
        CheckpointStore store(checkpoints, 2);
        const auto committed = store.commit(7, TextSnapshot("seven"));
        const auto newest = store.newest();
        return test::outcome_of(committed) + "; " + test::outcome_of(newest) + "; " + test::outcome_of(store.clear());
    };
    EXPECT_EQ(test::in_confined_child(rule, all), "done; done; done");

    // The folder itself leads elsewhere.
    fs::remove_all(checkpoints);
    ASSERT_TRUE(CheckpointStore(base / "outside", 2).commit(6, TextSnapshot("six")));
    const auto before = names(base / "outside");
    fs::create_directory_symlink("../outside", checkpoints);
    const std::string refused = test::in_confined_child(rule, all);
    EXPECT_THAT(refused, testing::MatchesRegex("path_not_allowed: .*; path_not_allowed: .*; path_not_allowed: .*"));
    EXPECT_EQ(names(base / "outside"), before);

    // A file of a checkpoint does: it is not taken for a damaged one.
    fs::remove(checkpoints);
    ASSERT_TRUE(CheckpointStore(checkpoints, 2).commit(7, TextSnapshot("seven")));
    fs::rename(checkpoints / "step-00000007/data", base / "outside/data");
    fs::create_symlink(base / "outside/data", checkpoints / "step-00000007/data");
    EXPECT_THAT(
        test::in_confined_child(rule, [&] { return test::outcome_of(CheckpointStore(checkpoints, 2).newest()); }),
        testing::StartsWith("path_not_allowed: "));
}

TEST_F(CheckpointStoreTest, AnEmptyOrAbsentFolderHasNone) {
    EXPECT_FALSE(store_.newest().value().folder);
    EXPECT_THAT(store_.entries().value(), IsEmpty());
    fs::create_directories(folder_ / "something-else");
    const NewestCheckpoint newest = store_.newest().value();
    EXPECT_FALSE(newest.folder);
    EXPECT_EQ(newest.warning, "");
    EXPECT_THAT(store_.entries().value(), IsEmpty());
}

TEST_F(CheckpointStoreTest, CommitsUnderTheStepAndKeepsTheNewest) {
    for (const std::uint64_t step : {5, 10, 100, 123456789}) {
        const auto committed = store_.commit(step, TextSnapshot("x"));
        ASSERT_TRUE(committed) << committed.error().message;
        EXPECT_EQ(*committed, folder_ / checkpoint_name(step));
        EXPECT_EQ(store_.newest().value().folder, *committed);
        EXPECT_EQ(store_.entries().value().front().step, step);
    }
    EXPECT_THAT(names(folder_), ElementsAre("step-00000100", "step-123456789"));
}

TEST_F(CheckpointStoreTest, TheManifestComesBackAsWritten) {
    const fs::path folder = store_.commit(7, TextSnapshot("x")).value();
    const CheckpointManifest manifest = read_checkpoint_manifest(folder).value();
    EXPECT_EQ(manifest.run.step, 7U);
    EXPECT_EQ(manifest.run.spec_json, R"({"name":"é \" \\"})");
    EXPECT_EQ(manifest.adam_steps, 6U);
    EXPECT_EQ(manifest.files.size(), 1U);
    EXPECT_EQ(manifest.run.last.step, 7U);
    EXPECT_DOUBLE_EQ(manifest.run.last.loss, 1.25);
    EXPECT_TRUE(std::isnan(manifest.run.last.grad_norm)) << "not finite is null in JSON";
    EXPECT_EQ(manifest.run.last.nonfinite_steps, 3U);
}

TEST_F(CheckpointStoreTest, AManifestOfAnEarlierVersionHasNoProgress) {
    const fs::path folder = store_.commit(7, TextSnapshot("x")).value();
    auto state = boost::json::parse(read_bytes(folder / kManifestFile)).as_object();
    ASSERT_EQ(state.erase("progress"), 1U);
    ASSERT_EQ(state.erase("sha256"), 1U);
    write_bytes(folder / kManifestFile, boost::json::serialize(state));
    const auto manifest = read_checkpoint_manifest(folder);
    ASSERT_TRUE(manifest) << manifest.error().message;
    EXPECT_EQ(manifest->run.last.step, 0U);
}

/// A folder under a checkpoint's name with a file of somebody's in it.
void make_strange(const fs::path& folder) {
    fs::create_directories(folder);
    write_bytes(folder / "thesis.txt", "years of work");
}

TEST_F(CheckpointStoreTest, WhatDistilldDidNotWriteIsNeverRemoved) {
    make_strange(folder_ / "step-00000007");
    make_strange(folder_ / "step-00000001");
    make_strange(folder_ / ".tmp-notes");
    ASSERT_TRUE(store_.commit(4, TextSnapshot("x")));
    ASSERT_TRUE(store_.commit(5, TextSnapshot("x")));
    ASSERT_TRUE(store_.commit(6, TextSnapshot("x")));
    EXPECT_THAT(names(folder_),
                ElementsAre(".tmp-notes", "step-00000001", "step-00000005", "step-00000006", "step-00000007"));
    const auto in_the_way = store_.commit(7, TextSnapshot("x"));
    ASSERT_FALSE(in_the_way);
    EXPECT_EQ(in_the_way.error().kind, ErrorKind::invalid_input);
    EXPECT_THAT(in_the_way.error().message, HasSubstr("step-00000007 is in the way"));
    ASSERT_TRUE(store_.clear());
    EXPECT_THAT(names(folder_), ElementsAre(".tmp-notes", "step-00000001", "step-00000007"));
    EXPECT_EQ(read_bytes(folder_ / "step-00000007" / "thesis.txt"), "years of work");
}

TEST_F(CheckpointStoreTest, TheSameStepIsReplaced) {
    ASSERT_TRUE(store_.commit(5, TextSnapshot("old")));
    ASSERT_TRUE(store_.commit(5, TextSnapshot("new")));
    EXPECT_THAT(names(folder_), ElementsAre("step-00000005"));
    EXPECT_EQ(read_bytes(folder_ / "step-00000005" / "data"), "new");
}

TEST_F(CheckpointStoreTest, ADamagedNewestFallsBackWithAWarning) {
    ASSERT_TRUE(store_.commit(5, TextSnapshot("five")));
    const fs::path ten = store_.commit(10, TextSnapshot("ten")).value();
    write_bytes(ten / "data", "tin");
    const NewestCheckpoint newest = store_.newest().value();
    EXPECT_EQ(newest.folder, folder_ / "step-00000005");
    EXPECT_THAT(newest.warning, HasSubstr("step-00000010/data is damaged"));

    fs::remove(ten / "data");
    EXPECT_EQ(store_.newest().value().folder, folder_ / "step-00000005");
    fs::remove(ten / kManifestFile);
    EXPECT_EQ(store_.newest().value().folder, folder_ / "step-00000005");
    write_bytes(ten / kManifestFile, R"({"format_version":1,"step":)");
    EXPECT_EQ(store_.newest().value().folder, folder_ / "step-00000005");
    write_bytes(folder_ / "step-00000005" / kManifestFile, "[]");
    const NewestCheckpoint none = store_.newest().value();
    EXPECT_FALSE(none.folder);
    EXPECT_THAT(none.warning, HasSubstr("step-00000005"));
}

TEST_F(CheckpointStoreTest, F12AChangedStateIsNoticed) {
    ASSERT_TRUE(store_.commit(5, TextSnapshot("five")));
    const fs::path ten = store_.commit(10, TextSnapshot("ten")).value();
    const std::string whole = read_bytes(ten / kManifestFile);
    for (const char* field : {"next_micro_batch", "adam_steps", "tokens_seen", "step", "sha256"}) {
        std::string changed = whole;
        const std::size_t last = changed.find_first_of(",}", changed.find(field)) - 1;
        const std::size_t digit = changed[last] == '"' ? last - 1 : last;
        changed[digit] = changed[digit] == '1' ? '2' : '1';
        write_bytes(ten / kManifestFile, changed);
        const NewestCheckpoint newest = store_.newest().value();
        EXPECT_EQ(newest.folder, folder_ / "step-00000005") << field;
        EXPECT_THAT(newest.warning, HasSubstr("step-00000010/state.json is damaged")) << field;
        EXPECT_THAT(newest.damaged, ElementsAre(ten));
    }
    write_bytes(ten / kManifestFile, whole);
    EXPECT_EQ(store_.newest().value().folder, ten);
    EXPECT_THAT(store_.newest().value().damaged, IsEmpty());
}

TEST_F(CheckpointStoreTest, F12ADamagedCheckpointIsSetAsideAndNotInTheWay) {
    ASSERT_TRUE(store_.commit(5, TextSnapshot("five")));
    for (const char* name : {"step-00000010.damaged", "step-00000010.damaged.2"}) {
        const fs::path ten = store_.commit(10, TextSnapshot("ten")).value();
        write_bytes(ten / kManifestFile, R"({"format_version":1,"step":)");
        EXPECT_FALSE(store_.commit(10, TextSnapshot("again"))) << "nobody has said that it may go";
        const auto aside = store_.set_aside(store_.newest().value().damaged);
        ASSERT_TRUE(aside) << aside.error().message;
        EXPECT_THAT(*aside, ElementsAre(folder_ / name));
        EXPECT_EQ(read_bytes(folder_ / name / "data"), "ten");
    }
    ASSERT_TRUE(store_.commit(10, TextSnapshot("again")));
    EXPECT_EQ(store_.newest().value().folder, folder_ / "step-00000010");
    EXPECT_THAT(names(folder_),
                ElementsAre("step-00000005", "step-00000010", "step-00000010.damaged", "step-00000010.damaged.2"));
}

TEST_F(CheckpointStoreTest, WhatIsNotOursOrOfAnotherVersionIsNotSetAside) {
    make_strange(folder_ / "step-00000007");
    const fs::path ten = store_.commit(10, TextSnapshot("ten")).value();
    write_bytes(ten / kManifestFile, R"({"format_version":2})");
    const NewestCheckpoint newest = store_.newest().value();
    EXPECT_FALSE(newest.folder);
    EXPECT_THAT(newest.damaged, IsEmpty());
}

TEST_F(CheckpointStoreTest, AManifestThatNamesFilesElsewhereIsRefused) {
    const fs::path folder = store_.commit(5, TextSnapshot("x")).value();
    CheckpointManifest manifest = read_checkpoint_manifest(folder).value();
    manifest.files["../../secret"] = "00";
    ASSERT_TRUE(write_checkpoint_manifest(folder, manifest));
    const auto read = read_checkpoint_manifest(folder);
    ASSERT_FALSE(read);
    EXPECT_THAT(read.error().message, HasSubstr("../../secret"));
}

TEST_F(CheckpointStoreTest, LaterStepsOfAnAbandonedLineGo) {
    ASSERT_TRUE(store_.commit(5, TextSnapshot("five")));
    const fs::path ten = store_.commit(10, TextSnapshot("ten")).value();
    write_bytes(ten / "data", "damaged");
    ASSERT_TRUE(store_.commit(8, TextSnapshot("eight")));  // gone on from 5
    EXPECT_THAT(names(folder_), ElementsAre("step-00000005", "step-00000008"));
}

TEST_F(CheckpointStoreTest, LeftoversOfAnInterruptedCommitGo) {
    ASSERT_TRUE(store_.commit(5, TextSnapshot("five")));
    fs::create_directories(folder_ / ".tmp-step-00000006");
    write_bytes(folder_ / ".tmp-step-00000006" / "data", "half");
    EXPECT_EQ(store_.newest().value().folder, folder_ / "step-00000005");
    ASSERT_TRUE(store_.commit(6, TextSnapshot("six")));
    EXPECT_THAT(names(folder_), ElementsAre("step-00000005", "step-00000006"));
}

TEST_F(CheckpointStoreTest, AFailedWriteLeavesTheOthersUntouched) {
    CheckpointStore one(folder_, 1);
    ASSERT_TRUE(one.commit(5, TextSnapshot("five")));
    for (const std::uint64_t step : {5, 6}) {
        const auto committed = one.commit(step, TextSnapshot("more", true));
        ASSERT_FALSE(committed);
        EXPECT_EQ(committed.error().kind, ErrorKind::io);
        EXPECT_THAT(committed.error().message, HasSubstr("No space left"));
        EXPECT_THAT(names(folder_), ElementsAre("step-00000005"));
        EXPECT_EQ(read_bytes(folder_ / "step-00000005" / "data"), "five");
    }
}

TEST_F(CheckpointStoreTest, AWriteTheSystemRefusesNamesTheFile) {
    ASSERT_TRUE(store_.commit(5, TextSnapshot("five")));
    rlimit old{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{1000, old.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const auto committed = store_.commit(6, TextSnapshot(std::string(5000, 'x')));
    setrlimit(RLIMIT_FSIZE, &old);
    std::signal(SIGXFSZ, old_handler);
    ASSERT_FALSE(committed);
    EXPECT_THAT(committed.error().message, HasSubstr("step-00000006/data"));
    EXPECT_THAT(names(folder_), ElementsAre("step-00000005"));
}

TEST_F(CheckpointStoreTest, F12WithoutADescriptorItIsWorthAnotherTry) {
    ASSERT_TRUE(store_.commit(5, TextSnapshot("five")));
    for (const std::uint64_t step : {5, 6}) {
        rlimit old{};
        ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
        const rlimit none{0, old.rlim_max};
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
        const auto committed = store_.commit(step, TextSnapshot("more"));
        setrlimit(RLIMIT_NOFILE, &old);
        ASSERT_FALSE(committed);
        EXPECT_EQ(committed.error().kind, ErrorKind::disk_full);
        EXPECT_THAT(committed.error().message, HasSubstr("Too many open files"));
        EXPECT_THAT(names(folder_), ElementsAre("step-00000005"));
    }
    EXPECT_TRUE(store_.commit(6, TextSnapshot("six")));
}

TEST_F(CheckpointStoreTest, AFileInTheWayOfTheFolderIsNamed) {
    fs::create_directories(folder_.parent_path());
    write_bytes(folder_, "not a folder");
    const auto committed = store_.commit(1, TextSnapshot("x"));
    ASSERT_FALSE(committed);
    EXPECT_THAT(committed.error().message, HasSubstr(folder_.string()));
    EXPECT_FALSE(store_.newest());
}

/// Two attempts of a job over one folder.
class FencedStoreTest : public CheckpointStoreTest {
  protected:
    FolderFence take(std::uint64_t number) const {
        return std::move(*FolderFence::try_take(folder_, {"job-a", number}).value());
    }
    std::vector<std::string> checkpoints() const {
        auto found = names(folder_);
        std::erase_if(found, [](const std::string& name) { return name.starts_with(".distilld-fence."); });
        return found;
    }
    void SetUp() override { fs::create_directories(folder_); }
};

TEST_F(FencedStoreTest, AReplacedWriterChangesNothing) {
    FolderFence first = take(1);
    CheckpointStore late(folder_, 1, &first);
    ASSERT_TRUE(late.commit(5, TextSnapshot("old")));
    FolderFence second = take(2);
    CheckpointStore current(folder_, 3, &second);
    for (const std::uint64_t step : {6, 7}) {
        ASSERT_TRUE(current.commit(step, TextSnapshot("new")));
    }
    const fs::path half = folder_ / (".tmp-step-00000008." + second.holder());
    fs::create_directory(half);  // the current one is writing it

    for (const std::uint64_t step : {6, 8}) {
        const auto committed = late.commit(step, TextSnapshot("old"));
        ASSERT_FALSE(committed);
        EXPECT_THAT(committed.error().message, HasSubstr("attempt 1 of job-a was replaced by attempt 2"));
    }
    EXPECT_FALSE(late.clear());
    EXPECT_FALSE(late.remove_leftovers());
    EXPECT_FALSE(late.set_aside({folder_ / "step-00000007"}));
    EXPECT_THAT(checkpoints(), ElementsAre(half.filename(), "step-00000005", "step-00000006", "step-00000007"));
    EXPECT_EQ(read_bytes(folder_ / "step-00000006" / "data"), "new");
    ASSERT_TRUE(current.commit(8, TextSnapshot("new")));
    EXPECT_THAT(checkpoints(), ElementsAre("step-00000006", "step-00000007", "step-00000008"));
}

/// Lets another attempt take the folder and commit, after it has written everything.
class OvertakenSnapshot final : public StudentSnapshot {
  public:
    explicit OvertakenSnapshot(std::function<void()> meanwhile, bool fails = false)
        : meanwhile_(std::move(meanwhile)), text_("old", fails) {}

    Result<void> write_checkpoint(const fs::path& folder) const override {
        const Result<void> written = text_.write_checkpoint(folder);
        meanwhile_();
        return written;
    }
    Result<std::vector<fs::path>> write_model(const fs::path&) const override { return {}; }

  private:
    std::function<void()> meanwhile_;
    TextSnapshot text_;
};

TEST_F(FencedStoreTest, AWriterThatIsReplacedWhileItWritesCommitsNothing) {
    for (const bool fails : {false, true}) {
        FolderFence first = take(fails ? 3 : 1);
        std::optional<FolderFence> second;
        const auto overtake = [&] {
            second = take(fails ? 4 : 2);
            ASSERT_TRUE(CheckpointStore(folder_, 2, &*second).commit(6, TextSnapshot("new")));
        };
        const auto late = CheckpointStore(folder_, 2, &first).commit(6, OvertakenSnapshot(overtake, fails));
        ASSERT_FALSE(late);
        EXPECT_THAT(checkpoints(), ElementsAre("step-00000006"));
        EXPECT_EQ(read_bytes(folder_ / "step-00000006" / "data"), "new");
        EXPECT_TRUE(CheckpointStore(folder_, 2, &first).newest().value().folder);
    }
}

TEST_F(FencedStoreTest, LeftoversOfEarlierAttemptsGo) {
    fs::create_directories(folder_ / ".tmp-step-00000006.0123456789abcdef");
    fs::create_directories(folder_ / ".tmp-step-00000006.0123456789abcdeg");
    FolderFence fence = take(1);
    CheckpointStore store(folder_, 2, &fence);
    ASSERT_TRUE(store.commit(6, TextSnapshot("x")));
    EXPECT_THAT(checkpoints(), ElementsAre(".tmp-step-00000006.0123456789abcdeg", "step-00000006"));
}

}  // namespace
}  // namespace distilld::models
