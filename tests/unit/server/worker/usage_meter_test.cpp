#include "server/worker/machine/usage_meter.hpp"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "server/worker/machine/disk_space.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

class FakeMemory final : public models::DeviceMemory {
  public:
    void reset_peak() override {}
    std::uint64_t peak_bytes() override { return 3; }
    std::uint64_t total_bytes() override { return 4; }
    std::uint64_t allocated_bytes() override { return ++looks; }
    std::uint64_t reserved_bytes() override { return 2; }
    std::uint64_t available_bytes() override { return 0; }
    std::uint64_t looks = 0;
};

TEST(UsageMeter, TellsOfTheProcessItsDeviceAndItsDisks) {
    const test::TemporaryFolder folder;
    boost::asio::io_context disk(1);
    UsageSources sources{
        "cuda:0", std::make_shared<FakeMemory>(), {{"output", folder.path() / "not" / "made" / "yet"}}};
    const WorkerUsage usage = UsageMeter(disk.get_executor(), std::move(sources)).newest();
    EXPECT_GT(usage.resident_bytes, 1'000'000U);
    EXPECT_GE(usage.peak_resident_bytes, usage.resident_bytes / 2);
    EXPECT_GT(usage.cpu_seconds, 0.0);
    EXPECT_GE(usage.open_files, 3U);
    EXPECT_EQ(usage.device, "cuda:0");
    EXPECT_EQ(usage.device_allocated_bytes, 1U);
    EXPECT_EQ(usage.device_reserved_bytes, 2U);
    EXPECT_EQ(usage.device_peak_bytes, 3U);
    EXPECT_EQ(usage.device_total_bytes, 4U);
    ASSERT_EQ(usage.disks.size(), 1U);
    EXPECT_EQ(usage.disks[0].of, "output");
    EXPECT_GT(usage.disks[0].size_bytes, usage.disks[0].free_bytes);
    const auto space = std::filesystem::space(folder.path());
    EXPECT_EQ(usage.disks[0].size_bytes, space.capacity);
}

TEST(UsageMeter, LooksAgainOnTheDisksThreadAndDoesNotWaitForIt) {
    const auto memory = std::make_shared<FakeMemory>();
    boost::asio::io_context disk(1);
    UsageMeter meter(disk.get_executor(), {"cpu", memory, {}});
    EXPECT_EQ(meter.newest().device_allocated_bytes, 1U);
    EXPECT_EQ(disk.run(), 0U) << "it is not older than a second";
    std::this_thread::sleep_for(std::chrono::milliseconds(1010));
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(meter.newest().device_allocated_bytes, 1U);
    }
    disk.restart();
    EXPECT_EQ(disk.run(), 1U) << "one look at a time";
    EXPECT_EQ(meter.newest().device_allocated_bytes, 2U);
}

TEST(UsageMeter, ADeviceThatCannotBeAskedIsLeftOut) {
    boost::asio::io_context disk(1);
    EXPECT_EQ(UsageMeter(disk.get_executor(), {"cpu", nullptr, {}}).newest().device, "");
}

}  // namespace
}  // namespace distilld
