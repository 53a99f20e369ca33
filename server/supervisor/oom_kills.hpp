#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

namespace distilld {

/// Tells how many processes the kernel has killed for lack of memory so far; nothing: it does not say.
using OomKills = std::function<std::optional<std::uint64_t>()>;

/// Of our own control group, of which our workers are too: memory.events (version 2) or memory.oom_control (version 1).
/// They count kills for the group's own limit and for want of memory on the whole machine. Where there is no group,
/// /proc/vmstat, which counts those of all the machine. `root`: another folder than / for tests. Any thread.
[[nodiscard]] OomKills kernel_oom_kills(const std::filesystem::path& root = "/");

}  // namespace distilld
