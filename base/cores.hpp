#pragma once

#include <sched.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

/// Cores as the kernel numbers them: logical processors, of which a physical core may have several.
namespace distilld {

/// Those that the calling thread may run on, ascending; never none.
[[nodiscard]] std::vector<std::uint32_t> allowed_cores();

/// How many these are. Other than std::thread::hardware_concurrency() it knows of taskset, cpusets and slots.
[[nodiscard]] std::uint32_t core_count();

/// The same cores, the siblings of a physical core side by side and the physical cores of a package too, so that parts
/// cut from the list share as little as may be. `sysfs` is the kernel's folder of processors; a core that it does not
/// know comes last.
[[nodiscard]] std::vector<std::uint32_t> side_by_side(std::span<const std::uint32_t> cores,
                                                      const std::filesystem::path& sysfs = "/sys/devices/system/cpu");

/// "0-2,5", as /proc/PID/status writes it.
[[nodiscard]] std::string core_list(std::vector<std::uint32_t> cores);

/// A set of cores as the kernel takes it. It may be used between fork and exec: apply() allocates nothing.
class CoreSet {
  public:
    /// Empty: apply() changes nothing.
    explicit CoreSet(std::span<const std::uint32_t> cores);

    /// Binds the calling thread, and what it starts from here on, to them. False: errno says why.
    [[nodiscard]] bool apply() const noexcept;

  private:
    struct Free {
        void operator()(cpu_set_t* set) const { CPU_FREE(set); }
    };
    std::unique_ptr<cpu_set_t, Free> set_;
    std::size_t bytes_ = 0;
};

}  // namespace distilld
