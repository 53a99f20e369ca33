#include "server/sinks/file_sink.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

#include "base/files/files.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld::sinks {
namespace {

using ::testing::HasSubstr;

std::string content(const std::filesystem::path& file) {
    return read_text_file(file, 1 << 20).value();
}

/// While this lives, no file grows above so many bytes: a disk that is full, for all that the writer can tell.
class FileLimit {
  public:
    explicit FileLimit(rlim_t bytes) {
        std::signal(SIGXFSZ, SIG_IGN);
        ::getrlimit(RLIMIT_FSIZE, &before_);
        rlimit limit = before_;
        limit.rlim_cur = bytes;
        ::setrlimit(RLIMIT_FSIZE, &limit);
    }
    ~FileLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }

  private:
    rlimit before_{};
};

TEST(AppendFile, MakesItsFolderAndGoesOnWithWhatIsThere) {
    const test::TemporaryFolder folder;
    const auto path = folder.path() / "a" / "b" / "file";
    AppendFile::open(path).value().append("one\n").value();
    auto file = AppendFile::open(path).value();
    EXPECT_EQ(file.size(), 4U);
    file.append("two\n").value();
    EXPECT_EQ(content(path), "one\ntwo\n");
    file.cut(4).value();
    file.append("2\n").value();
    EXPECT_EQ(content(path), "one\n2\n");
}

TEST(AppendFile, APieceThatDoesNotFitLeavesNothingBehind) {
    const test::TemporaryFolder folder;
    auto file = AppendFile::open(folder.path() / "file").value();
    file.append("whole\n").value();
    {
        const FileLimit full(10);
        const auto done = file.append("too long\n");
        ASSERT_FALSE(done);
        EXPECT_THAT(done.error().message, HasSubstr((folder.path() / "file").string()));
        EXPECT_EQ(content(folder.path() / "file"), "whole\n");
    }
    file.append("too long\n").value();
    EXPECT_EQ(content(folder.path() / "file"), "whole\ntoo long\n");
}

TEST(AppendFile, WhatIsNoFileOfOursIsRefused) {
    const test::TemporaryFolder folder;
    const auto taken = AppendFile::open(folder.path() / "taken").value();
    EXPECT_THAT(AppendFile::open(folder.path() / "taken").error().message, HasSubstr("another run writes to"));
    ASSERT_EQ(::mkfifo((folder.path() / "pipe").c_str(), 0600), 0);
    EXPECT_THAT(AppendFile::open(folder.path() / "pipe").error().message, HasSubstr("is not a regular file"));
    EXPECT_THAT(AppendFile::open(folder.path()).error().message, HasSubstr("cannot open"));
    EXPECT_THAT(AppendFile::open(folder.path() / "taken" / "below").error().message, HasSubstr("cannot create folder"));
}

}  // namespace
}  // namespace distilld::sinks
