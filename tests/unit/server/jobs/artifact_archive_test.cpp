#include "server/jobs/routes/artifact_archive.hpp"

#include <archive.h>
#include <archive_entry.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "api/job_spec_json.hpp"
#include "base/error.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Unpacked {
    std::vector<std::string> names;
    std::map<std::string, std::string> contents;
    std::map<std::string, std::int64_t> times;
};

Unpacked read_tar(const std::string& tar) {
    Unpacked unpacked;
    archive* reader = archive_read_new();
    archive_read_support_format_tar(reader);
    EXPECT_EQ(archive_read_open_memory(reader, tar.data(), tar.size()), ARCHIVE_OK);
    archive_entry* entry = nullptr;
    while (archive_read_next_header(reader, &entry) == ARCHIVE_OK) {
        const std::string name = archive_entry_pathname(entry);
        EXPECT_EQ(archive_entry_uid(entry), 0);
        EXPECT_EQ(archive_entry_gid(entry), 0);
        EXPECT_EQ(archive_entry_perm(entry), archive_entry_filetype(entry) == AE_IFDIR ? 0755U : 0644U);
        unpacked.names.push_back(name);
        unpacked.times[name] = archive_entry_mtime(entry);
        std::string content(static_cast<std::size_t>(archive_entry_size(entry)), '\0');
        EXPECT_EQ(archive_read_data(reader, content.data(), content.size()), static_cast<la_ssize_t>(content.size()));
        unpacked.contents[name] = std::move(content);
    }
    archive_read_free(reader);
    return unpacked;
}

class Artifacts : public ::testing::Test {
  protected:
    Artifacts() {
        write("config.json", "{}");
        write("model.safetensors", std::string(1'000'003, 'w'));
        write("merged/b", "bb");
        write("merged/a", "");
        write("keys.json", "secret");
        write("merged/neighbour", "secret");
        write("checkpoints/step-1/weights", "secret");
        write(".cache/tokens", "hidden");
        write(".model.safetensors.tmp", "hidden");
        fs::create_directories(root() / "empty");
        std::ofstream(outside() / "key") << "secret";
        fs::create_directory_symlink(outside(), root() / "way-out");
        fs::create_symlink(outside() / "key", root() / "key");
        fs::create_symlink("/dev/null", root() / "device");
        fs::create_symlink("config.json", root() / "config-too.json");
        fs::create_directory_symlink(".", root() / "circle");
        name_files({"config.json", "model.safetensors", "merged/b", "merged/a", "not-there", "key", "way-out/key",
                    "device", "config-too.json", "circle/config.json", "../student/config.json", "/etc/passwd",
                    ".cache/tokens", "", "empty", "distilld.json"});
        job_.state = api::JobState::succeeded;
        job_.output = root().string();
    }
    void write(const std::string& name, const std::string& content) {
        fs::create_directories((root() / name).parent_path());
        std::ofstream(root() / name, std::ios::binary) << content;
    }
    /// As the job's worker does.
    void name_files(const std::vector<std::string>& names, const std::string& weights = "") {
        boost::json::array files(names.begin(), names.end());
        write("distilld.json",
              boost::json::serialize(boost::json::object{{"weights_sha256", weights}, {"files", std::move(files)}}));
    }
    [[nodiscard]] fs::path root() const { return folder_.path() / "student"; }
    [[nodiscard]] fs::path outside() const { return folder_.path(); }
    [[nodiscard]] ArtifactFolder artifacts() const { return artifact_folder_of(job_).value().value(); }
    [[nodiscard]] ArtifactArchive archive() const { return {artifacts(), list_artifacts(artifacts()).value()}; }
    static std::string drain(ArtifactArchive& archive, std::size_t& largest) {
        std::string tar;
        while (auto piece = archive.next()) {
            EXPECT_FALSE(piece->empty());
            largest = std::max(largest, piece->size());
            tar += *piece;
        }
        return tar;
    }

    test::TemporaryFolder folder_;
    api::Job job_;
};

TEST_F(Artifacts, F2AreWhatTheJobWroteAndNothingThatLiesBeside) {
    auto archive = this->archive();
    std::size_t largest = 0;
    const auto unpacked = read_tar(drain(archive, largest));
    EXPECT_THAT(unpacked.names,
                ElementsAre("config.json", "distilld.json", "merged/", "merged/a", "merged/b", "model.safetensors"));
    EXPECT_EQ(unpacked.contents.at("model.safetensors"), std::string(1'000'003, 'w'));
    EXPECT_EQ(unpacked.contents.at("merged/b"), "bb");
    EXPECT_EQ(unpacked.contents.at("config.json"), "{}");
    struct stat status{};
    ASSERT_EQ(::stat((root() / "config.json").c_str(), &status), 0);
    EXPECT_EQ(unpacked.times.at("config.json"), status.st_mtime);
    EXPECT_LE(largest, 2 * ArtifactArchive::kPieceBytes);
}

TEST_F(Artifacts, OfTheSameFilesAreTheSameBytes) {
    std::size_t largest = 0;
    auto one = archive();
    auto other = archive();
    EXPECT_EQ(drain(one, largest), drain(other, largest));
}

TEST_F(Artifacts, NamesOfAnyLengthAndFilesBeyond8GiBFit) {
    const std::string deep = std::string(120, 'd') + "/" + std::string(200, 'f') + "-\xC3\xA9";
    write(deep, "deep");
    name_files({"config.json", deep, "huge"});
    std::ofstream(root() / "huge") << "";
    fs::resize_file(root() / "huge", std::uint64_t{9} << 30U);  // all of it a hole
    auto archive = this->archive();
    // Up to the header of the huge one: its size is in it, and nobody reads what comes after.
    std::string tar;
    while (tar.find("huge") == std::string::npos) {
        tar += archive.next().value();
    }
    EXPECT_THAT(tar, HasSubstr("size=9663676416\n"));
    EXPECT_THAT(tar, HasSubstr(deep));
}

TEST_F(Artifacts, AnArchiveThatIsLeftInAFileIsGoneAtOnce) {
    fs::resize_file(root() / "model.safetensors", std::uint64_t{1} << 40U);  // 1 TiB: to fill it up would take hours
    auto archive = std::make_unique<ArtifactArchive>(artifacts(), list_artifacts(artifacts()).value());
    for (int piece = 0; piece < 3; ++piece) {
        ASSERT_TRUE(archive->next());
    }
    archive.reset();
}

TEST_F(Artifacts, AFileThatShrinksOrGoesEndsTheStreamWithAnError) {
    auto archive = this->archive();
    ASSERT_TRUE(archive.next());
    fs::resize_file(root() / "model.safetensors", 300'000);
    EXPECT_THROW(while (archive.next()){}, ErrorException);
    auto other = this->archive();
    fs::remove(root() / "config.json");
    EXPECT_THROW(while (other.next()){}, ErrorException);
}

TEST_F(Artifacts, F2AFileIsOpenedByItsNameAndNoLinkIsFollowed) {
    auto file = open_artifact(artifacts(), "merged/b").value();
    ASSERT_TRUE(file);
    EXPECT_EQ(file->size, 2U);
    EXPECT_EQ(file->read(1), "b");
    EXPECT_EQ(file->read(10), "b");
    EXPECT_EQ(file->read(10), "");
    for (const std::string name : {"",
                                   ".",
                                   "..",
                                   "../key",
                                   "merged/../config.json",
                                   "/etc/passwd",
                                   "way-out/key",
                                   "key",
                                   "device",
                                   "merged",
                                   "merged/b/c",
                                   "checkpoints/step-1/weights",
                                   ".cache/tokens",
                                   "circle/.cache/tokens",
                                   "circle/config.json",
                                   "config-too.json",
                                   "keys.json",
                                   "merged/neighbour",
                                   "circle/checkpoints/step-1/weights",
                                   "nobody",
                                   "merged//b/"}) {
        EXPECT_FALSE(open_artifact(artifacts(), name).value()) << name;
    }
    EXPECT_FALSE(open_artifact(artifacts(), std::string("config.json\0x", 13)).value());
    EXPECT_FALSE(open_artifact(artifacts(), std::string(5000, 'x')).value());
}

TEST_F(Artifacts, F2AnotherFolderUnderTheNameOfAnOpenOneIsNotRead) {
    const auto folder = artifacts();
    fs::rename(root(), outside() / "moved");
    fs::create_directories(outside() / "student");
    std::ofstream(root() / "config.json") << "another's";
    EXPECT_EQ(open_artifact(folder, "config.json").value()->read(100), "{}");
}

TEST_F(Artifacts, F2OfAModelThatNamesNoFilesAreThoseThatExportsWrote) {
    write("distilld.json", R"({"weights_sha256":""})");
    write("ternary/config.json", "{}");
    std::vector<std::string> names;
    for (const auto& entry : list_artifacts(artifacts()).value()) {
        names.push_back(entry.name);
    }
    EXPECT_THAT(names,
                ElementsAre("config.json", "distilld.json", "model.safetensors", "ternary", "ternary/config.json"));
}

TEST_F(Artifacts, F2OfSinksAreThoseThatTheSpecNamesInTheFolder) {
    JobSpec spec;
    spec.student.model = "/m";
    spec.dataset.train = {"/d"};
    spec.dataset.sequence_length = 8;
    spec.training.max_steps = 1;
    spec.training.kd_ratio = 0;
    spec.output = root();
    spec.metrics.jsonl_file = root() / "figures.jsonl";
    spec.metrics.tensorboard_dir = root() / "tb";
    job_.resolved_spec_json = api::to_json(spec);
    ASSERT_TRUE(api::parse_job_spec(job_.resolved_spec_json));
    name_files({"config.json"});
    write("figures.jsonl", "{}");
    write("other.jsonl", "secret");
    write("tb/events.out.tfevents.1.host.2", "events");
    write("tb/notes", "secret");
    write("mlflow_run.json", "secret");
    std::vector<std::string> names;
    for (const auto& entry : list_artifacts(artifacts()).value()) {
        names.push_back(entry.name);
    }
    EXPECT_THAT(names, ElementsAre("config.json", "figures.jsonl", "tb", "tb/events.out.tfevents.1.host.2"));
}

TEST_F(Artifacts, APipeIsNotWaitedFor) {
    ASSERT_EQ(::mkfifo((root() / "pipe").c_str(), 0600), 0);
    name_files({"pipe"});
    EXPECT_FALSE(open_artifact(artifacts(), "pipe").value());
}

TEST_F(Artifacts, AreGoneWithTheirFolderAndWhenAnotherRunWroteThere) {
    EXPECT_TRUE(artifact_folder_of(job_).value());
    job_.weights_sha256 = "abc";
    EXPECT_FALSE(artifact_folder_of(job_).value()) << "nothing says whose model it is";
    name_files({"config.json"}, "def");
    EXPECT_FALSE(artifact_folder_of(job_).value());
    name_files({"config.json"}, "abc");
    EXPECT_TRUE(artifact_folder_of(job_).value());
    fs::remove_all(root());
    EXPECT_FALSE(artifact_folder_of(job_).value());
    std::ofstream(root()) << "a file";
    EXPECT_FALSE(artifact_folder_of(job_).value());
}

}  // namespace
}  // namespace distilld
