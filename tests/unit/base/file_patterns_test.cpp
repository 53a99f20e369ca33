#include "base/file_patterns.hpp"

#include <gmock/gmock.h>

#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(FilePatterns, LookLikeWhatShellsTakeForPatterns) {
    for (const char* pattern : {"data/*.jsonl", "part-?.jsonl", "[ab].jsonl"}) {
        EXPECT_TRUE(looks_like_pattern(pattern)) << pattern;
    }
    EXPECT_FALSE(looks_like_pattern("data/train {1}.jsonl"));
}

TEST(FilePatterns, MatchFilesInTheOrderOfTheirBytes) {
    const test::TemporaryFolder folder;
    for (const char* name : {"b.jsonl", "a.jsonl", "B.jsonl", "c.txt"}) {
        folder.write(name, "");
    }
    std::filesystem::create_directory(folder / "folder.jsonl");
    const auto in = [&](const char* name) { return (folder / name).string(); };
    EXPECT_THAT(files_matching(in("*.jsonl")).value(), ElementsAre(in("B.jsonl"), in("a.jsonl"), in("b.jsonl")));
    EXPECT_THAT(files_matching(in("folder*")).value(), IsEmpty());
    EXPECT_THAT(files_matching(in("*.json")).value(), IsEmpty());
}

TEST(FilePatterns, AFolderThatCannotBeReadIsAnError) {
    const test::TemporaryFolder folder;
    folder.write("file", "");
    const auto pattern = (folder / "file" / "*.jsonl").string();
    const auto files = files_matching(pattern);
    EXPECT_TRUE(!files || files->empty()) << "nothing can lie in a file";
    if (!files) {
        EXPECT_THAT(files.error().message, HasSubstr(pattern + ": a folder on its way cannot be read"));
    }
}

}  // namespace
}  // namespace distilld
