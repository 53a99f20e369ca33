#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

#include "base/error.hpp"

namespace distilld {

/// A sequential source of bytes. One thread.
class ByteSource {
  public:
    virtual ~ByteSource() = default;
    /// Fills the front of `out`, which is not empty, and returns the number of bytes; 0 is the end. Errors name the
    /// file.
    virtual Result<std::size_t> read(std::span<char> out) = 0;
    /// Bytes of the file on the disk that read() has consumed so far.
    [[nodiscard]] virtual std::uint64_t file_bytes_read() const = 0;
};

/// Opens a regular file; gzip and zstd, recognized by their first bytes, are decompressed in bounded memory.
/// Consecutive members (frames) are one text. Other formats (xz, bzip2, zip) are refused by name. Anything but a
/// regular file is refused without blocking on a pipe.
Result<std::unique_ptr<ByteSource>> open_bytes(const std::filesystem::path& file);

/// log2 of the maximum window of a zstd frame, in bytes. `zstd` without --long stays below it.
inline constexpr int kMaxZstdWindowLog = 27;

/// Decompresses the gzip members (RFC 1952) in `packed`; zeros after the last are padding. Checksums are verified.
/// Truncated or damaged files, and trailing bytes that are not a member, are errors that name `file`.
std::unique_ptr<ByteSource> make_gzip_source(std::filesystem::path file, std::unique_ptr<ByteSource> packed);

/// The same for zstd frames (RFC 8878), including skippable ones; checksums are verified if present. A frame with a
/// window above 2^kMaxZstdWindowLog bytes, or one that needs a dictionary, is an error.
std::unique_ptr<ByteSource> make_zstd_source(std::filesystem::path file, std::unique_ptr<ByteSource> packed);

}  // namespace distilld
