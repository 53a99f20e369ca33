#include "base/files/folder_lock.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

class FolderLockTest : public ::testing::Test {
  protected:
    /// Whether the lock can be had now; given back at once.
    bool is_free() const { return FolderLock::try_lock_file(folder_).value().has_value(); }

    const test::TemporaryFolder temporary_;
    const std::filesystem::path folder_ = temporary_.path();
};

TEST_F(FolderLockTest, OneHasItUntilItIsGivenBack) {
    {
        const auto held = FolderLock::try_lock_file(folder_).value();
        ASSERT_TRUE(held);
        EXPECT_FALSE(is_free());
    }
    EXPECT_TRUE(is_free());
}

TEST_F(FolderLockTest, AMoveTakesItAlong) {
    auto held = FolderLock::try_lock_file(folder_).value();
    ASSERT_TRUE(held);
    {
        const FolderLock moved = std::move(*held);
        EXPECT_FALSE(is_free());
    }
    EXPECT_TRUE(is_free());
}

TEST_F(FolderLockTest, AProcessThatIsKilledLeavesItFree) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        const auto held = FolderLock::try_lock_file(folder_);
        const char said = held && *held ? 'y' : 'n';
        if (::write(ready[1], &said, 1) != 1) {
            ::_exit(1);
        }
        for (;;) {
            ::pause();
        }
    }
    char said = 0;
    ASSERT_EQ(::read(ready[0], &said, 1), 1);
    EXPECT_EQ(said, 'y');
    EXPECT_FALSE(is_free());
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    EXPECT_TRUE(is_free());
    ::close(ready[0]);
    ::close(ready[1]);
}

TEST_F(FolderLockTest, ALockFileDoesTheSame) {
    {
        const auto held = FolderLock::try_lock_file(folder_).value();
        ASSERT_TRUE(held);
        EXPECT_FALSE(FolderLock::try_lock_file(folder_).value());
        EXPECT_EQ(FolderLock::is_held(folder_), true);
    }
    EXPECT_TRUE(FolderLock::try_lock_file(folder_).value());
    EXPECT_EQ(FolderLock::is_held(folder_), false);
    EXPECT_EQ(FolderLock::is_held(folder_ / "missing"), false);
    const auto missing = FolderLock::try_lock_file(folder_ / "missing");
    ASSERT_FALSE(missing);
    EXPECT_NE(missing.error().message.find("missing/lock"), std::string::npos);
}

}  // namespace
}  // namespace distilld
