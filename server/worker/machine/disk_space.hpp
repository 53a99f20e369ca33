#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/worker_events.hpp"

/// Disk space that a run needs, for messages. Torch-free; any thread.
namespace distilld {

/// Size of one checkpoint: weights and the two moments of AdamW, all fp32.
[[nodiscard]] constexpr std::uint64_t checkpoint_bytes(std::uint64_t parameters) noexcept {
    return parameters * 3 * sizeof(float);
}
/// Upper bound for an exported model: weights in fp32.
[[nodiscard]] constexpr std::uint64_t export_bytes(std::uint64_t parameters) noexcept {
    return parameters * sizeof(float);
}

/// What an unprivileged user may still write to the folder's file system; absent: unknown.
[[nodiscard]] std::optional<std::uint64_t> free_bytes(const std::filesystem::path& folder);

/// Whether the folder's file system (or, before it exists, its parent's) is read-only.
[[nodiscard]] bool is_read_only(const std::filesystem::path& folder);

/// Of the folder's file system or, before it exists, the one that it will be created on.
[[nodiscard]] std::optional<DiskUsage> disk_usage(std::string of, std::filesystem::path folder);

/// "12.3 MB": decimal units.
[[nodiscard]] std::string size_text(std::uint64_t bytes);

/// Adds to an error of kind disk_full, before its reason, the folder, what `what` needs and what is free. Returns other
/// errors unchanged.
[[nodiscard]] Error explain_full_disk(Error error, const std::filesystem::path& folder, const std::string& what,
                                      std::uint64_t needed);

/// A sentence if `free` is less than one checkpoint needs; empty: there is room, or it is unknown.
[[nodiscard]] std::string space_warning(const std::filesystem::path& folder, std::uint64_t needed,
                                        std::optional<std::uint64_t> free);

}  // namespace distilld
