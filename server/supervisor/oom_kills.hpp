#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

namespace distilld {

/// Returns how many processes the kernel has killed so far because memory ran out; nullopt: unknown.
using OomKills = std::function<std::optional<std::uint64_t>()>;

/// Counts kills in our own control group, which also holds our workers: memory.events (version 2) or memory.oom_control
/// (version 1). Both count kills for the group's own limit and for the whole machine's. Without a group it reads
/// /proc/vmstat, which counts the whole machine. `root`: a folder other than /, for tests. Any thread.
[[nodiscard]] OomKills kernel_oom_kills(const std::filesystem::path& root = "/");

}  // namespace distilld
