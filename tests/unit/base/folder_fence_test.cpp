#include "base/files/folder_fence.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "base/files/folder_lock.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* kFile = ".distilld-fence.json";

class FolderFenceTest : public testing::Test {
  protected:
    std::optional<FolderFence> take(const std::string& job, std::uint64_t number) const {
        Result<std::optional<FolderFence>> taken = FolderFence::try_take(folder_.path(), {job, number});
        EXPECT_TRUE(taken) << taken.error().message;
        return taken ? std::move(*taken) : std::nullopt;
    }
    std::string refusal(const std::string& job, std::uint64_t number) const {
        const Result<std::optional<FolderFence>> taken = FolderFence::try_take(folder_.path(), {job, number});
        return taken ? "taken" : taken.error().message;
    }
    void write_fence(const std::string& text) const { std::ofstream(folder_ / kFile) << text; }

    test::TemporaryFolder folder_;
    int changes_ = 0;
    const std::function<Result<void>()> change_ = [this] {
        ++changes_;
        return Result<void>();
    };
};

TEST_F(FolderFenceTest, RunsExcludeEachOtherWhileBothLive) {
    for (const char* job : {"", "job-b"}) {
        auto first = take("", 0);
        ASSERT_TRUE(first);
        EXPECT_FALSE(take(job, 7));
        EXPECT_TRUE(first->commit(change_));
        first.reset();
        const auto second = take(job, 7);
        ASSERT_TRUE(second);
        EXPECT_FALSE(second->has_replaced());
    }
    EXPECT_EQ(changes_, 2);
}

TEST_F(FolderFenceTest, ALaterAttemptOfTheJobNeedNotWait) {
    auto first = take("job-a", 1);
    ASSERT_TRUE(first);
    EXPECT_FALSE(take("job-a", 1)) << "the same number is another run";
    EXPECT_FALSE(take("job-b", 2));
    auto second = take("job-a", 2);
    ASSERT_TRUE(second);
    EXPECT_TRUE(second->has_replaced());
    EXPECT_TRUE(second->commit(change_));
    EXPECT_TRUE(second->check());
    EXPECT_FALSE(first->is_lost()) << "it does not know yet";
    const Result<void> lost = first->check();
    ASSERT_FALSE(lost);
    EXPECT_TRUE(first->is_lost());
    const Result<void> late = first->commit(change_);
    ASSERT_FALSE(late);
    EXPECT_EQ(lost.error().message, late.error().message);
    EXPECT_EQ(late.error().message,
              folder_.path().string() + ": attempt 1 of job-a was replaced by attempt 2; nothing was changed");
    EXPECT_EQ(changes_, 1);
    first.reset();
    EXPECT_FALSE(take("job-b", 9)) << "the end of the first one does not free the folder of the second one";
    EXPECT_TRUE(second->commit(change_));
}

TEST_F(FolderFenceTest, AnotherProcessOfTheRunCommitsWhileItsHolderHasTheFolder) {
    auto first = take("job-a", 1);
    ASSERT_TRUE(first);
    auto beside = FolderFence::held_by(folder_.path(), {"job-a", 1}, first->holder());
    EXPECT_TRUE(beside.commit(change_));
    EXPECT_TRUE(first->commit(change_)) << "it is still the first one's";
    const auto second = take("job-a", 2);
    ASSERT_TRUE(second);
    EXPECT_THAT(beside.commit(change_).error().message, HasSubstr("attempt 1 of job-a was replaced by attempt 2"));
    EXPECT_TRUE(beside.is_lost());
    EXPECT_EQ(changes_, 2);
    fs::remove(folder_ / kFile);
    EXPECT_THAT(beside.commit(change_).error().message, HasSubstr("is missing; rank 0 of this run writes it"));
    EXPECT_FALSE(fs::exists(folder_ / kFile)) << "it does not take the folder";
    EXPECT_EQ(changes_, 2);
}

TEST_F(FolderFenceTest, AnEarlierAttemptThatRunsMaySaveItsLastStep) {
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        const auto fence = FolderFence::try_take(folder_.path(), {"job-a", 1});
        const char said = fence && *fence ? 'y' : 'n';
        const ssize_t told = ::write(ready[1], &said, 1);
        for (;;) {
            ::pause();
        }
        ::_exit(told == 1 ? 0 : 1);
    }
    char said = 0;
    ASSERT_EQ(::read(ready[0], &said, 1), 1);
    ASSERT_EQ(said, 'y');
    const auto try_take = [&](const char* job) {
        return FolderFence::try_take(folder_.path(), {job, 2}, EarlierAttempt::replaced_if_it_stands).value();
    };
    EXPECT_FALSE(try_take("job-a"));
    ASSERT_EQ(::kill(child, SIGSTOP), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
    EXPECT_FALSE(try_take("job-b"));
    const auto taken = try_take("job-a");
    ASSERT_TRUE(taken);
    EXPECT_TRUE(taken->has_replaced());
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ::close(ready[0]);
    ::close(ready[1]);
}

TEST_F(FolderFenceTest, AnEarlierAttemptIsRefusedEvenAfterTheEndOfTheLaterOne) {
    ASSERT_TRUE(take("job-a", 5));
    EXPECT_EQ(refusal("job-a", 4),
              (folder_ / kFile).string() +
                  ": attempt 4 of job-a was replaced by attempt 5; nothing was changed; remove the "
                  "file if no attempt 5 is running");
    EXPECT_TRUE(take("job-a", 5));
    EXPECT_TRUE(take("job-b", 1));
}

TEST_F(FolderFenceTest, ARunWhoseLockTheFileSystemDroppedIsFencedToo) {
    auto first = take("", 0);
    ASSERT_TRUE(first);
    // As after a partition: the lock is of a file that is not there any more.
    fs::copy_file(folder_ / kFile, folder_ / "copy");
    fs::rename(folder_ / "copy", folder_ / kFile);
    EXPECT_TRUE(first->commit(change_));
    auto second = take("", 0);
    ASSERT_TRUE(second);
    EXPECT_FALSE(second->has_replaced());
    EXPECT_THAT(first->commit(change_).error().message, HasSubstr("another run has taken it"));
    EXPECT_EQ(changes_, 1);
}

TEST_F(FolderFenceTest, AFolderThatWasRemovedIsStillOurs) {
    auto fence = FolderFence::try_take(folder_.path(), {"job-a", 1}).value();
    fs::remove_all(folder_.path());
    ASSERT_TRUE(fence->commit(change_));
    EXPECT_FALSE(take("job-b", 1));
    EXPECT_EQ(changes_, 1);
}

TEST_F(FolderFenceTest, CommitsWaitForEachOtherAndNotForEver) {
    auto fence = take("job-a", 1);
    const auto held = FolderLock::try_lock_file(folder_.path(), LockShare::exclusive, ".distilld-fence.lock").value();
    ASSERT_TRUE(held);
    EXPECT_THAT(fence->commit(change_, std::chrono::milliseconds(5)).error().message,
                HasSubstr(".distilld-fence.lock: another process holds its lock for too long"));
    EXPECT_FALSE(take("job-a", 2));
    EXPECT_FALSE(fence->is_lost());
    EXPECT_EQ(changes_, 0);
}

TEST_F(FolderFenceTest, TheResultOfTheChangeIsPassedOn) {
    EXPECT_EQ(take("job-a", 1)->commit([] { return Result<void>(invalid_input("no")); }).error().message, "no");
}

TEST_F(FolderFenceTest, AnUnreadableFenceIsNamed) {
    const std::string whole = R"({"version":1,"job":"job-a","attempt":1,"holder":"0123456789abcdef"})";
    const std::string texts[] = {"",
                                 "[]",
                                 "{",
                                 whole.substr(0, 20),
                                 "{}",
                                 std::string(1U << 20, ' '),
                                 R"({"version":2,"job":"","attempt":1,"holder":"0"})",
                                 R"({"version":1,"job":7,"attempt":1,"holder":"0"})",
                                 R"({"version":1,"job":"job-a","attempt":-1,"holder":"0"})",
                                 R"({"version":1,"job":"job-a","attempt":18446744073709551616,"holder":"0"})"};
    for (const std::string& text : texts) {
        write_fence(text);
        EXPECT_THAT(refusal("job-a", 2), HasSubstr(kFile)) << text.substr(0, 80);
        EXPECT_THAT(refusal("job-a", 2), HasSubstr("remove the file if no run uses the folder")) << text.substr(0, 80);
    }
    write_fence(whole);
    EXPECT_TRUE(take("job-a", 2));
}

TEST_F(FolderFenceTest, TheHighestNumberIsANumber) {
    write_fence(R"({"version":1,"job":"job-a","attempt":18446744073709551615,"holder":"0"})");
    EXPECT_THAT(refusal("job-a", 2), HasSubstr("replaced by attempt 18446744073709551615"));
    EXPECT_TRUE(take("job-a", UINT64_MAX));
}

TEST_F(FolderFenceTest, LinksAreNotFollowed) {
    std::ofstream(folder_ / "other") << "mine";
    fs::create_symlink("other", folder_ / kFile);
    EXPECT_THAT(refusal("job-a", 1), HasSubstr(std::string(kFile) + ": is a link"));
    fs::remove(folder_ / kFile);
    fs::remove(folder_ / ".distilld-fence.lock");
    fs::create_symlink("other", folder_ / ".distilld-fence.lock");
    EXPECT_THAT(refusal("job-a", 1), HasSubstr(".distilld-fence.lock: cannot open"));
    EXPECT_EQ(test::read_bytes(folder_ / "other"), "mine");
    fs::remove(folder_ / ".distilld-fence.lock");
    fs::create_directory(folder_ / kFile);
    EXPECT_THAT(refusal("job-a", 1), HasSubstr("is a folder"));
}

}  // namespace
}  // namespace distilld
