#include "models/training/device_memory.hpp"

#include <torch/types.h>
#include <torch/version.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "models/network/device.hpp"

// Since this version, libtorch has one interface for the allocators of all kinds of devices.
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 10
#define DISTILLD_HAS_DEVICE_ALLOCATOR 1
#include <c10/core/CachingDeviceAllocator.h>
#else
#define DISTILLD_HAS_DEVICE_ALLOCATOR 0
#endif

namespace distilld::models {
namespace {

/// Reads a field such as "VmHWM:   1234 kB" of a /proc file, in bytes; 0 if it is absent.
std::uint64_t proc_field(const char* file, const std::string& name) {
    std::ifstream in(file);
    std::string word;
    while (in >> word) {
        if (word == name) {
            std::uint64_t kilobytes = 0;
            in >> kilobytes;
            return kilobytes * 1024U;
        }
    }
    return 0;
}

std::uint64_t number_in(const char* file) {
    std::ifstream in(file);
    std::uint64_t value = 0;
    return in >> value ? value : std::numeric_limits<std::uint64_t>::max();
}

class HostMemory final : public DeviceMemory {
  public:
    void reset_peak() override { std::ofstream("/proc/self/clear_refs") << "5"; }
    std::uint64_t peak_bytes() override { return proc_field("/proc/self/status", "VmHWM:"); }
    std::uint64_t allocated_bytes() override { return proc_field("/proc/self/status", "VmRSS:"); }
    std::uint64_t reserved_bytes() override { return allocated_bytes(); }
    std::uint64_t total_bytes() override {
        return std::min(proc_field("/proc/meminfo", "MemTotal:"), number_in("/sys/fs/cgroup/memory.max"));
    }
    std::uint64_t available_bytes() override {
        const std::uint64_t available = proc_field("/proc/meminfo", "MemAvailable:");
        // Control groups, version 2. No file means no limit; "max" is not a number either.
        const std::uint64_t limit = number_in("/sys/fs/cgroup/memory.max");
        const std::uint64_t used = number_in("/sys/fs/cgroup/memory.current");
        const bool limited = limit != std::numeric_limits<std::uint64_t>::max() && used <= limit;
        return limited ? std::min(available, limit - used) : available;
    }
};

#if DISTILLD_HAS_DEVICE_ALLOCATOR
/// Uses libtorch's interface for all allocators, so that a build without CUDA compiles it too.
class AcceleratorMemory final : public DeviceMemory {
  public:
    explicit AcceleratorMemory(const torch::Device& device)
        : allocator_(*c10::getDeviceAllocator(device.type())), index_(device.index()) {}

    void reset_peak() override { allocator_.resetPeakStats(index_); }
    std::uint64_t peak_bytes() override { return unsigned_of(stats().allocated_bytes[kAll].peak); }
    std::uint64_t allocated_bytes() override { return unsigned_of(stats().allocated_bytes[kAll].current); }
    std::uint64_t reserved_bytes() override { return unsigned_of(stats().reserved_bytes[kAll].current); }
    std::uint64_t total_bytes() override { return allocator_.getMemoryInfo(index_).second; }
    std::uint64_t available_bytes() override {
        const auto all = stats();
        const std::uint64_t reserved = unsigned_of(all.reserved_bytes[kAll].current);
        const std::uint64_t allocated = unsigned_of(all.allocated_bytes[kAll].current);
        return allocator_.getMemoryInfo(index_).first + (reserved - std::min(reserved, allocated));
    }

  private:
    static constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);

    [[nodiscard]] c10::CachingDeviceAllocator::DeviceStats stats() { return allocator_.getDeviceStats(index_); }
    static std::uint64_t unsigned_of(std::int64_t bytes) {
        return static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 0));
    }

    c10::DeviceAllocator& allocator_;
    c10::DeviceIndex index_;
};
#endif

}  // namespace

Result<std::unique_ptr<DeviceMemory>> make_device_memory(const std::string& device) {
    const Result<torch::Device> resolved = resolve_device(device);
    if (!resolved) {
        return resolved.error();
    }
    if (resolved->is_cpu()) {
        return std::unique_ptr<DeviceMemory>(std::make_unique<HostMemory>());
    }
#if DISTILLD_HAS_DEVICE_ALLOCATOR
    return std::unique_ptr<DeviceMemory>(std::make_unique<AcceleratorMemory>(*resolved));
#else
    return invalid_input("/student/device: libtorch " TORCH_VERSION " does not report the memory of " + device +
                         "; training on it needs libtorch 2.10 or newer");
#endif
}

}  // namespace distilld::models
