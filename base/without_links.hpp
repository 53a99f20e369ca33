#pragma once

#include <fcntl.h>

#include <filesystem>

#include "base/descriptor.hpp"

namespace distilld {

/// Opens an absolute path on which there is neither a link nor `..`: what is opened is what the path spells, or nothing
/// is, whoever swaps what for a link meanwhile. None: errno says why; ELOOP or ENOTDIR where there is a link. Uses
/// openat2(2); where the kernel has none, or a sandbox forbids it, walk_without_links().
[[nodiscard]] Descriptor open_without_links(const std::filesystem::path& path, int flags, mode_t mode);

/// The same, folder by folder (O_NOFOLLOW).
[[nodiscard]] Descriptor walk_without_links(const std::filesystem::path& path, int flags, mode_t mode);

/// The folder, as O_PATH: what of the path is missing is made.
[[nodiscard]] Descriptor make_without_links(const std::filesystem::path& folder);

}  // namespace distilld
