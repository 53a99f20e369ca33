#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "pipeline/data/lines/byte_source.hpp"

namespace distilld {

/// Reads a file, compressed or not (see open_bytes()), line by line through one buffer, which grows up to the longest
/// line or the limit. One thread.
class LineReader {
  public:
    /// `padding` bytes after each line are readable, as simdjson needs.
    LineReader(std::filesystem::path file, std::size_t max_line_bytes, std::size_t padding);

    /// Fails like open_bytes().
    Result<void> open();

    /// Steps to the next line. False: end of file. The line has no line break (LF or CRLF) and, if it is the first, no
    /// byte order mark; it is valid until the next call.
    Result<bool> next();

    [[nodiscard]] std::string_view line() const noexcept { return line_; }
    [[nodiscard]] std::uint64_t line_number() const noexcept { return line_number_; }
    /// Uncompressed bytes up to the end of this line.
    [[nodiscard]] std::uint64_t bytes_consumed() const noexcept { return bytes_consumed_; }
    /// Bytes of the file on the disk up to the end of this line; approximate for a compressed file.
    [[nodiscard]] std::uint64_t file_bytes_consumed() const;
    /// "file:line", for messages.
    [[nodiscard]] std::string location() const;

  private:
    Result<void> fill();
    void take(std::size_t length, std::size_t line_break);

    std::filesystem::path file_;
    std::size_t max_line_bytes_;
    std::size_t padding_;
    std::unique_ptr<ByteSource> source_;
    bool at_end_ = false;
    std::vector<char> buffer_;
    std::size_t begin_ = 0;  ///< first byte not yet handed out
    std::size_t end_ = 0;    ///< end of what was read
    std::string_view line_;
    std::uint64_t line_number_ = 0;
    std::uint64_t bytes_consumed_ = 0;
    std::uint64_t bytes_read_ = 0;  ///< into the buffer
};

}  // namespace distilld
