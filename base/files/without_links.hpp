#pragma once

#include <fcntl.h>

#include <filesystem>

#include "base/files/descriptor.hpp"

namespace distilld {

/// Opens an absolute path without links and `..`. Fails if a part is meanwhile replaced with a link. -1: see errno;
/// ELOOP or ENOTDIR for a link. Uses openat2(2), or walk_without_links() if the kernel or a sandbox does not allow it.
[[nodiscard]] Descriptor open_without_links(const std::filesystem::path& path, int flags, mode_t mode);

/// The same, folder by folder (O_NOFOLLOW).
[[nodiscard]] Descriptor walk_without_links(const std::filesystem::path& path, int flags, mode_t mode);

/// Opens the folder as O_PATH and creates missing parts of the path.
[[nodiscard]] Descriptor make_without_links(const std::filesystem::path& folder);

}  // namespace distilld
