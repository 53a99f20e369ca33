#include "base/files/file_patterns.hpp"

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

TEST(FilePatterns, MatchAsGlobDoes) {
    const test::TemporaryFolder folder;
    for (const char* name :
         {"a/x.jsonl", "a/.hidden.jsonl", "b/x.jsonl", "b/y.jsonl", "b/deep/x.jsonl", "[a]/x.jsonl"}) {
        std::filesystem::create_directories((folder / name).parent_path());
        folder.write(name, "");
    }
    std::filesystem::create_directory_symlink(folder / "b", folder / "link");
    std::filesystem::create_symlink(folder / "nowhere", folder / "a" / "dangling.jsonl");
    const auto in = [&](const char* name) { return (folder / name).string(); };
    EXPECT_THAT(files_matching(in("?/x.jsonl")).value(), ElementsAre(in("a/x.jsonl"), in("b/x.jsonl")));
    EXPECT_THAT(files_matching(in("a/*")).value(), ElementsAre(in("a/x.jsonl")));
    EXPECT_THAT(files_matching(in("[!a]/*.jsonl")).value(), ElementsAre(in("b/x.jsonl"), in("b/y.jsonl")));
    EXPECT_THAT(files_matching(in("[[]a]/x.jsonl")).value(), ElementsAre(in("[a]/x.jsonl")));
    EXPECT_THAT(files_matching(in("l*/y.jsonl")).value(), ElementsAre(in("link/y.jsonl")));
    EXPECT_THAT(files_matching(in("nowhere/*")).value(), IsEmpty());
    EXPECT_EQ(fixed_part("/data/of/*/x.jsonl"), "/data/of");
    EXPECT_EQ(fixed_part("data/x.jsonl"), "data/x.jsonl");
}

TEST(FilePatterns, F4ASearchEndsAtItsBudgetWhichSeveralShare) {
    const test::TemporaryFolder folder;
    for (const char* below : {"a", "b", "c"}) {
        std::filesystem::create_directory(folder / below);
        std::filesystem::create_directory_symlink("..", folder / below / "up");  // in circles
        folder.write(std::string(below) + "/x", "");
    }
    const auto pattern = [&](const char* end) { return (folder / end).string(); };
    const auto said = [&](PatternBudget budget, const char* end = "*/up/*/up/*/x") {
        const auto found = files_matching(pattern(end), budget);
        return found ? std::to_string(found->size()) + " found" : found.error().message;
    };
    EXPECT_EQ(said({}), "27 found");
    EXPECT_THAT(said({.folders = 12}),
                HasSubstr(pattern("*/up/*/up/*/x") + ": the pattern looks into too many folders"));
    EXPECT_EQ(said({.folders = 13}), "27 found");
    EXPECT_THAT(said({.entries = 20}), HasSubstr("looks at too many files"));
    EXPECT_THAT(said({.matches = 26}), HasSubstr("has too many matches"));
    EXPECT_THAT(said({.deadline = std::chrono::steady_clock::now()}), HasSubstr("takes too long"));
    PatternBudget shared{.folders = 20};
    EXPECT_TRUE(files_matching(pattern("*/up/*/up/*/x"), shared));
    EXPECT_EQ(files_matching(pattern("*/up/*/up/*/x"), shared).error().kind, ErrorKind::invalid_input);
}

TEST(FilePatterns, AFolderThatCannotBeReadIsAnError) {
    const test::TemporaryFolder folder;
    folder.write("file", "");
    const auto pattern = (folder / "file" / "*.jsonl").string();
    const auto files = files_matching(pattern);
    EXPECT_TRUE(!files || files->empty()) << "nothing can lie in a file";
    if (!files) {
        EXPECT_THAT(files.error().message, HasSubstr(pattern + ": a folder in its path cannot be read"));
    }
}

}  // namespace
}  // namespace distilld
