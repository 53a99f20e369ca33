#pragma once

#include <sched.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Cores as the kernel numbers them: logical processors. A physical core may have several.
namespace distilld {

/// The cores that the calling thread may run on, ascending; never empty.
[[nodiscard]] std::vector<std::uint32_t> allowed_cores();

/// The number of these cores. Unlike std::thread::hardware_concurrency(), it respects taskset, cpusets and slots.
[[nodiscard]] std::uint32_t core_count();

/// The same cores, sorted so that siblings of a physical core and the physical cores of a package are adjacent: parts
/// of the list share as little as possible. `sysfs` is the kernel's folder of processors; an unknown core comes last.
[[nodiscard]] std::vector<std::uint32_t> side_by_side(std::span<const std::uint32_t> cores,
                                                      const std::filesystem::path& sysfs = "/sys/devices/system/cpu");

/// "0-2,5", as in /proc/PID/status.
[[nodiscard]] std::string core_list(std::vector<std::uint32_t> cores);

/// A set of cores in the kernel's form. Usable between fork and exec: apply() does not allocate.
class CoreSet {
  public:
    /// Empty: apply() changes nothing.
    explicit CoreSet(std::span<const std::uint32_t> cores);

    /// Binds the calling thread, and threads that it starts later, to the cores. If false, see errno.
    [[nodiscard]] bool apply() const noexcept;

  private:
    struct Free {
        void operator()(cpu_set_t* set) const { CPU_FREE(set); }
    };
    std::unique_ptr<cpu_set_t, Free> set_;
    std::size_t bytes_ = 0;
};

/// The text of /proc/cpuinfo.
[[nodiscard]] std::string cpuinfo();

/// Whether the first processor in the text of /proc/cpuinfo has instructions for bf16 products: tiles (AMX), or
/// AVX512-BF16's dot products.
[[nodiscard]] bool multiplies_bf16(std::string_view cpuinfo);

}  // namespace distilld
