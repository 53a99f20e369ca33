#include "server/worker/machine/disk_space.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(DiskSpace, SaysWhatIsNeededAndWhatIsFree) {
    const test::TemporaryFolder folder;
    const Error full{ErrorKind::disk_full, "x: cannot write: No space left on device"};
    const Error told = explain_full_disk(full, folder.path(), "a checkpoint", checkpoint_bytes(125'000'000));
    EXPECT_EQ(told.kind, ErrorKind::disk_full);
    EXPECT_THAT(told.message,
                StartsWith(folder.path().string() + ": no space on the disk: a checkpoint needs 1.5 GB, "));
    EXPECT_THAT(told.message, HasSubstr("B are free (x: cannot write: No space left on device)"));
    EXPECT_EQ(explain_full_disk(io_error("x: broken"), folder.path(), "a checkpoint", 1).message, "x: broken");
}

TEST(DiskSpace, F12SaysWhyWhenItIsNotForSpace) {
    const test::TemporaryFolder folder;
    const Error none{ErrorKind::disk_full, "x: cannot create: Too many open files"};
    EXPECT_THAT(explain_full_disk(none, folder.path(), "a checkpoint", 1000).message,
                AllOf(StartsWith(folder.path().string() + ": cannot be written to: a checkpoint needs 1.0 kB, "),
                      HasSubstr("(x: cannot create: Too many open files)")));
    EXPECT_FALSE(is_read_only(folder.path()));
    EXPECT_FALSE(is_read_only(folder / "not/there/yet"));
}

TEST(DiskSpace, WarnsOfLessThanOneCheckpoint) {
    EXPECT_EQ(space_warning("/out", 1000, 1000), "");
    EXPECT_EQ(space_warning("/out", 1000, std::nullopt), "");
    EXPECT_THAT(space_warning("/out", 1000, 999), StartsWith("/out: a checkpoint needs 1.0 kB and 999 bytes are free"));
    EXPECT_FALSE(free_bytes("/there/is/no/such/folder"));
}

}  // namespace
}  // namespace distilld
