#include "pipeline/data/data_files.hpp"

#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using ::testing::ElementsAre;

class DataFilesTest : public ::testing::Test {
  protected:
    DataFilesTest() {
        for (const char* name : {"b.jsonl", "a.jsonl", "c10.jsonl.gz", "c9.jsonl.gz", "odd[1].jsonl", "B.jsonl"}) {
            folder_.write(name, "");
        }
        std::filesystem::create_directory(folder_ / "sub.jsonl");
        std::filesystem::create_symlink(folder_ / "a.jsonl", folder_ / "link");
    }

    std::string at(const std::string& name) const { return (folder_ / name).string(); }

    /// Names in the folder, or the error without it.
    std::vector<std::string> found(const std::vector<std::string>& names) const {
        std::vector<std::string> entries;
        entries.reserve(names.size());
        for (const std::string& name : names) {
            entries.push_back(at(name));
        }
        const auto files = find_data_files(entries, "/dataset/train");
        if (!files) {
            std::string message = files.error().message;
            const std::string folder = folder_.path().string() + "/";
            return {message.erase(message.find(folder), folder.size())};
        }
        std::vector<std::string> result;
        for (const auto& file : *files) {
            result.push_back(file.filename().string());
        }
        return result;
    }

    test::TemporaryFolder folder_;
};

TEST_F(DataFilesTest, AListStandsAsItIsAndAPatternSorted) {
    EXPECT_THAT(found({"b.jsonl", "a.jsonl"}), ElementsAre("b.jsonl", "a.jsonl"));
    EXPECT_THAT(found({"*.jsonl"}), ElementsAre("B.jsonl", "a.jsonl", "b.jsonl", "odd[1].jsonl"));
    EXPECT_THAT(found({"c*.gz", "[ab].jsonl"}), ElementsAre("c10.jsonl.gz", "c9.jsonl.gz", "a.jsonl", "b.jsonl"));
    EXPECT_THAT(found({"absent.jsonl"}), ElementsAre("absent.jsonl")) << "who opens it says so";
}

TEST_F(DataFilesTest, AFileStandsOnceWhoeverNamesIt) {
    EXPECT_THAT(found({"b.jsonl", "[ab].jsonl", "link", "b.jsonl"}), ElementsAre("b.jsonl", "a.jsonl"));
}

TEST_F(DataFilesTest, ANameThatIsThereIsNoPattern) {
    EXPECT_THAT(found({"odd[1].jsonl"}), ElementsAre("odd[1].jsonl"));
}

TEST_F(DataFilesTest, APatternThatMatchesNothingIsAnErrorWithItsPlace) {
    EXPECT_THAT(found({"*.txt"}), ElementsAre("/dataset/train: *.txt: no file matches this pattern"));
    EXPECT_THAT(found({"a.jsonl", "*.txt"}), ElementsAre("/dataset/train/1: *.txt: no file matches this pattern"));
    EXPECT_THAT(found({"s*.jsonl"}), ElementsAre("/dataset/train: s*.jsonl: no file matches this pattern"))
        << "only a folder does";
}

}  // namespace
}  // namespace distilld
