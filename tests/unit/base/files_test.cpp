#include "base/files/files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using test::file_count;
using test::read_bytes;
using test::TemporaryFolder;
using test::write_bytes;

using testing::HasSubstr;

TEST(FolderBytes, AreThoseOfTheFilesBelow) {
    const TemporaryFolder folder;
    EXPECT_EQ(folder_bytes(folder.path()), 0U);
    write_bytes(folder / "a", "12345");
    std::filesystem::create_directories(folder / "b" / "c");
    write_bytes(folder / "b" / "c" / "d", "1234567");
    EXPECT_EQ(folder_bytes(folder.path()), 12U);
    EXPECT_EQ(folder_bytes(folder / "nowhere"), 0U);
}

TEST(AtomicFile, AppearsOnCommitOnlyAndReplaces) {
    const TemporaryFolder folder;
    write_bytes(folder / "a", "old");
    {
        auto file = AtomicFile::create(folder / "a");
        ASSERT_TRUE(file);
        ASSERT_TRUE(file->write("new "));
        ASSERT_TRUE(file->write("text"));
        EXPECT_EQ(read_bytes(folder / "a"), "old");
        ASSERT_TRUE(file->commit());
    }
    EXPECT_EQ(read_bytes(folder / "a"), "new text");
    EXPECT_EQ(file_count(folder.path()), 1U);
}

TEST(AtomicFile, LeavesNothingWhenAbandoned) {
    const TemporaryFolder folder;
    {
        auto file = AtomicFile::create(folder / "a");
        ASSERT_TRUE(file);
        ASSERT_TRUE(file->write("half"));
        AtomicFile moved = std::move(*file);
        EXPECT_EQ(file_count(folder.path()), 1U);
    }
    EXPECT_EQ(file_count(folder.path()), 0U);
}

TEST(AtomicFile, NamesTheFileThatCannotBeMade) {
    const TemporaryFolder folder;
    const auto result = write_file_atomically(folder / "absent/file.json", "x");
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, ErrorKind::io);
    EXPECT_THAT(result.error().message, HasSubstr("absent/file.json: cannot open its folder"));
}

TEST(AtomicFile, AFullDiskIsAKindOfItsOwn) {
    EXPECT_EQ(write_error("x", ENOSPC).kind, ErrorKind::disk_full);
    EXPECT_EQ(write_error("x", EDQUOT).kind, ErrorKind::disk_full);
    EXPECT_EQ(write_error("x", EIO).kind, ErrorKind::io);
}

TEST(AtomicFile, F12WhatPassesIsWorthAnotherTry) {
    for (const int number : {EMFILE, ENFILE, EROFS}) {
        EXPECT_EQ(write_error("x", number).kind, ErrorKind::disk_full) << number;
    }
    for (const int number : {EIO, EACCES, EPERM, ENOENT, ENOLCK, ESTALE, EFBIG}) {
        EXPECT_EQ(write_error("x", number).kind, ErrorKind::io) << number;
    }
}

TEST(AtomicFile, CleansUpWhenTheNameIsAFolder) {
    const TemporaryFolder folder;
    std::filesystem::create_directories(folder / "taken/inside");
    const auto result = write_file_atomically(folder / "taken", "x");
    ASSERT_FALSE(result);
    EXPECT_THAT(result.error().message, HasSubstr("cannot rename into place"));
    EXPECT_EQ(file_count(folder.path()), 1U);
}

TEST(AtomicFile, CopiesBytes) {
    const TemporaryFolder folder;
    std::string bytes;
    for (int i = 0; i < 3'000'000; ++i) {
        bytes += static_cast<char>(i * 31 % 251);
    }
    write_bytes(folder / "from", bytes);
    ASSERT_TRUE(copy_file_atomically(folder / "from", folder / "to"));
    EXPECT_EQ(read_bytes(folder / "to"), bytes);
    const auto missing = copy_file_atomically(folder / "absent", folder / "to");
    ASSERT_FALSE(missing);
    EXPECT_THAT(missing.error().message, HasSubstr("absent: cannot open"));
    EXPECT_EQ(read_bytes(folder / "to"), bytes);
}

TEST(ReadTextFile, RefusesLargeFilesAndFolders) {
    const TemporaryFolder folder;
    write_bytes(folder / "a", "12345");
    EXPECT_EQ(read_text_file(folder / "a", 5).value(), "12345");
    EXPECT_THAT(read_text_file(folder / "a", 4).error().message, HasSubstr("more than the 4 allowed"));
    EXPECT_THAT(read_text_file(folder.path(), 100).error().message, HasSubstr("is a folder, not a file"));
}

}  // namespace
}  // namespace distilld
