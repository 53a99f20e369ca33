#pragma once

#include <filesystem>
#include <memory>

#include "pipeline/data/byte_source.hpp"

namespace distilld {

/// What the gzip members (RFC 1952) that `packed` holds come to; zeros behind the last are padding. Checksums are
/// checked. A file that is cut off or damaged, and bytes behind it that are no member, are errors that name `file`.
std::unique_ptr<ByteSource> make_gzip_source(std::filesystem::path file, std::unique_ptr<ByteSource> packed);

/// The same of zstd frames (RFC 8878), skippable ones among them; their checksums are checked where they have one. A
/// frame with a window above 2^kMaxZstdWindowLog bytes, or one that needs a dictionary, is an error.
std::unique_ptr<ByteSource> make_zstd_source(std::filesystem::path file, std::unique_ptr<ByteSource> packed);

}  // namespace distilld
