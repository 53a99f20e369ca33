#include "base/cores.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <thread>

#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using ::testing::ElementsAre;
using Cores = std::vector<std::uint32_t>;

void put(const std::filesystem::path& sysfs, std::uint32_t core, int package, int physical) {
    const auto topology = sysfs / ("cpu" + std::to_string(core)) / "topology";
    std::filesystem::create_directories(topology);
    std::ofstream(topology / "physical_package_id") << package << "\n";
    std::ofstream(topology / "core_id") << physical << "\n";
}

TEST(Cores, SiblingsAndPackagesStandSideBySide) {
    const test::TemporaryFolder sysfs;
    // As most machines number them: a core's second thread comes half of the machine later.
    for (std::uint32_t core = 0; core < 8; ++core) {
        put(sysfs.path(), core, static_cast<int>(core / 2 % 2), static_cast<int>(core % 4));
    }
    EXPECT_THAT(side_by_side(Cores{0, 1, 2, 3, 4, 5, 6, 7}, sysfs.path()), ElementsAre(0, 4, 1, 5, 2, 6, 3, 7));
    EXPECT_THAT(side_by_side(Cores{1, 3, 4}, sysfs.path()), ElementsAre(4, 1, 3));
    EXPECT_THAT(side_by_side(Cores{9, 8, 2}, sysfs.path()), ElementsAre(2, 8, 9)) << "unknown ones come last";
}

TEST(Cores, AreListedAsTheKernelDoes) {
    EXPECT_EQ(core_list({}), "");
    EXPECT_EQ(core_list({3}), "3");
    EXPECT_EQ(core_list({5, 0, 1, 2}), "0-2,5");
    EXPECT_EQ(core_list({0, 1, 3, 4, 6}), "0-1,3-4,6");
}

/// On a thread of its own: the others of the test keep theirs.
TEST(Cores, AThreadIsBoundAndSeesIt) {
    const Cores before = allowed_cores();
    ASSERT_FALSE(before.empty());
    EXPECT_EQ(core_count(), before.size());
    Cores inside;
    std::uint32_t counted = 0;
    bool bound = false;
    std::thread([&] {
        bound = CoreSet(Cores{before.back()}).apply();
        inside = allowed_cores();
        counted = core_count();
    }).join();
    EXPECT_TRUE(bound);
    EXPECT_THAT(inside, ElementsAre(before.back()));
    EXPECT_EQ(counted, 1U);
    EXPECT_TRUE(CoreSet({}).apply());
    EXPECT_EQ(allowed_cores(), before);
}

TEST(Cores, OnesThatAreNotThereAreRefused) {
    bool bound = true;
    int number = 0;
    std::thread([&] {
        bound = CoreSet(Cores{100'000}).apply();
        number = errno;
    }).join();
    EXPECT_FALSE(bound);
    EXPECT_EQ(number, EINVAL);
}

}  // namespace
}  // namespace distilld
