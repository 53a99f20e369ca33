#include "server/supervisor/oom_kills.hpp"

#include <gtest/gtest.h>

#include <chrono>

#include "server/supervisor/worker_run.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

/// A root folder with files of the kernel.
class OomKillsTest : public ::testing::Test {
  protected:
    void put(const std::string& file, const std::string& content) {
        std::filesystem::create_directories((root_ / file).parent_path());
        root_.write(file, content);
    }
    std::optional<std::uint64_t> count() { return kernel_oom_kills(root_.path())(); }

    test::TemporaryFolder root_;
};

TEST_F(OomKillsTest, AreThoseOfTheControlGroup) {
    put("proc/self/cgroup", "0::/system.slice/distilld.service\n");
    put("proc/vmstat", "nr_free_pages 1\noom_kill 70\n");
    EXPECT_EQ(count(), 70U) << "where the group does not say";
    put("sys/fs/cgroup/system.slice/distilld.service/memory.events", "low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\n");
    EXPECT_EQ(count(), 2U);
}

TEST_F(OomKillsTest, AreThoseOfAContainersOwnGroup) {
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/memory.events", "oom 3\noom_kill 4\noom_group_kill 0\n");
    EXPECT_EQ(count(), 4U);
}

TEST_F(OomKillsTest, AreThoseOfAGroupOfVersion1) {
    put("proc/self/cgroup", "5:cpu,memory:/a\n4:memory:/b/c\n0::/\n");
    put("sys/fs/cgroup/memory/b/c/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
    EXPECT_EQ(count(), 5U);
}

TEST_F(OomKillsTest, AreNotKnownWhereNothingSays) {
    EXPECT_EQ(count(), std::nullopt);
    put("proc/vmstat", "oom_kill many\n");
    EXPECT_EQ(count(), std::nullopt);
}

TEST_F(OomKillsTest, AreAskedAgainInTheSameFile) {
    put("proc/vmstat", "oom_kill 1\n");
    const auto kills = kernel_oom_kills(root_.path());
    EXPECT_EQ(kills(), 1U);
    put("proc/vmstat", "oom_kill 3\n");
    EXPECT_EQ(kills(), 3U);
}

TEST(OomWatch, SeesAKillOfTheLastSecondsOnly) {
    using namespace std::chrono_literals;
    std::uint64_t kills = 7;
    OomWatch watch([&kills] { return std::optional(kills); });
    const std::chrono::steady_clock::time_point begin{};
    watch.look(begin);
    EXPECT_FALSE(watch.killed_lately());
    kills = 8;
    EXPECT_TRUE(watch.killed_lately());
    watch.look(begin + 1s);  // what the child said before it died may be read behind that
    EXPECT_TRUE(watch.killed_lately());
    watch.look(begin + 2s);
    EXPECT_FALSE(watch.killed_lately()) << "that was another, and long ago";
    watch.look(begin + 2500ms);
    kills = 9;
    watch.look(begin + 2600ms);
    EXPECT_TRUE(watch.killed_lately()) << "it is not asked more often than once a second";
}

TEST(OomWatch, SeesNothingWhereTheKernelSaysNothing) {
    OomWatch watch([] { return std::optional<std::uint64_t>(); });
    watch.look({});
    EXPECT_FALSE(watch.killed_lately());
}

}  // namespace
}  // namespace distilld
