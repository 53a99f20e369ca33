#pragma once

#include <cstdint>
#include <filesystem>

#include "base/error.hpp"

namespace distilld::cli {

struct UnpackedTar {
    std::uint64_t files = 0;
    std::uint64_t bytes = 0;  ///< in these files
};

/// Unpacks a tar, read from a descriptor to its end, into an existing empty folder. Before writing an entry, refuses
/// (io) names that are absolute or lead out ("..", a link on the way), and anything that is neither a file nor a
/// folder. Modes are 0644 and 0755 less the umask, times are the tar's, owners are ours. Blocks.
Result<UnpackedTar> unpack_tar(int descriptor, const std::filesystem::path& folder);

}  // namespace distilld::cli
