#include "server/supervisor/token_folder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using ::testing::HasSubstr;

unsigned mode_of(const std::filesystem::path& path) {
    struct stat found{};
    return ::stat(path.c_str(), &found) == 0 ? found.st_mode & 07777U : 0;
}

TEST(TokenFolder, OnlyOurUserCanReadItsFiles) {
    const test::TemporaryFolder parent;
    const auto folder = TokenFolder::open(parent / "launcher").value();
    EXPECT_EQ(mode_of(parent / "launcher"), 0700U);
    const auto file = folder.keep("a-1", "secret").value();
    EXPECT_EQ(file, parent / "launcher/a-1.token");
    EXPECT_EQ(mode_of(file), 0600U);
    EXPECT_EQ(test::read_bytes(file), "secret");
    test::write_bytes(folder.log_of("a-1"), "said");
    EXPECT_TRUE(folder.keep("a-2", "other"));
    EXPECT_TRUE(folder.forget("a-1"));
    EXPECT_EQ(test::file_count(parent / "launcher"), 1U);
    EXPECT_TRUE(folder.forget("a-1")) << "nothing is left";
    EXPECT_TRUE(TokenFolder::open(parent / "launcher")) << "it is there";
}

TEST(TokenFolder, AFolderThatOthersCanUseIsRefused) {
    const test::TemporaryFolder parent;
    const auto refusal = [&parent](const std::string& name) {
        return TokenFolder::open(parent / name).error().message;
    };
    EXPECT_THAT(refusal("missing/launcher"), HasSubstr("cannot be created: No such file"));
    std::filesystem::create_directory(parent / "open");
    ::chmod((parent / "open").c_str(), 0710);
    EXPECT_EQ(refusal("open"), "launcher.folder: " + (parent / "open").string() +
                                   " can be used by others, but it is for secrets: chmod 700 it");
    std::filesystem::create_directory(parent / "mine");
    ::chmod((parent / "mine").c_str(), 0700);
    std::filesystem::create_symlink(parent / "mine", parent / "link");
    EXPECT_THAT(refusal("link"), HasSubstr("is not a folder, or a link to one"));
    parent.write("file", "");
    EXPECT_THAT(refusal("file"), HasSubstr("is not a folder"));
    if (::geteuid() == 0) {
        ASSERT_EQ(::chown((parent / "mine").c_str(), 1, 1), 0);
        EXPECT_THAT(refusal("mine"), HasSubstr("belongs to another user"));
    }
}

}  // namespace
}  // namespace distilld
