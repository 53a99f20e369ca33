#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/worker_events.hpp"

/// What a run needs of a disk, for people. Torch-free; any thread.
namespace distilld {

/// Of one checkpoint: weights and the two moments of AdamW, all fp32.
[[nodiscard]] constexpr std::uint64_t checkpoint_bytes(std::uint64_t parameters) noexcept {
    return parameters * 3 * sizeof(float);
}
/// Of an exported model, at most: weights in fp32.
[[nodiscard]] constexpr std::uint64_t export_bytes(std::uint64_t parameters) noexcept {
    return parameters * sizeof(float);
}

/// What an unprivileged user may still write to the folder's file system; absent: it does not say.
[[nodiscard]] std::optional<std::uint64_t> free_bytes(const std::filesystem::path& folder);

/// Whether the folder's file system is read-only, or that of the folder that it will be made in.
[[nodiscard]] bool is_read_only(const std::filesystem::path& folder);

/// Of the folder's file system, or of the one that the folder will be made on.
[[nodiscard]] std::optional<DiskUsage> disk_usage(std::string of, std::filesystem::path folder);

/// "12.3 MB": decimal units.
[[nodiscard]] std::string size_text(std::uint64_t bytes);

/// Of an error of kind disk_full: folder, what `what` needs and what is free in front of the reason. Others stay as
/// they are.
[[nodiscard]] Error explain_full_disk(Error error, const std::filesystem::path& folder, const std::string& what,
                                      std::uint64_t needed);

/// A sentence when `free` is less than one checkpoint needs; empty: there is room, or it is not known.
[[nodiscard]] std::string space_warning(const std::filesystem::path& folder, std::uint64_t needed,
                                        std::optional<std::uint64_t> free);

}  // namespace distilld
