#pragma once

#include <cstdint>
#include <filesystem>

#include "base/error.hpp"

namespace distilld::cli {

struct UnpackedTar {
    std::uint64_t files = 0;
    std::uint64_t bytes = 0;  ///< of these
};

/// Unpacks a tar that comes out of a descriptor, to its end, into a folder that is there and empty. Refused (io) before
/// anything of it is written: names that are absolute or lead out ("..", a link on the way), and all that is neither a
/// file nor a folder. Modes are 0644 and 0755 less the umask, times those of the tar, owners ours. Blocks.
Result<UnpackedTar> unpack_tar(int descriptor, const std::filesystem::path& folder);

}  // namespace distilld::cli
