#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/error.hpp"

namespace distilld {

/// Bytes, from the first to the last. One thread.
class ByteSource {
  public:
    virtual ~ByteSource() = default;
    /// Fills the front of `out`, which is not empty, and says how much of it: 0 is the end. Errors name the file.
    virtual Result<std::size_t> read(std::span<char> out) = 0;
    /// Bytes of the file on the disk that were taken for what read() gave so far.
    [[nodiscard]] virtual std::uint64_t file_bytes_read() const = 0;
};

/// Opens a regular file; what is packed with gzip or zstd is unpacked as it is read, in bounded memory. Its first bytes
/// tell, not its name. Several members (frames) one after the other are one text. A file packed otherwise (xz, bzip2,
/// zip) is refused by name; so is what is no regular file, without waiting for anybody at the other end of a pipe.
Result<std::unique_ptr<ByteSource>> open_bytes(const std::filesystem::path& file);

/// 2 to this power: bytes of the largest window that a zstd frame may ask memory for. What `zstd` makes without --long
/// stays below.
inline constexpr int kMaxZstdWindowLog = 27;

}  // namespace distilld
