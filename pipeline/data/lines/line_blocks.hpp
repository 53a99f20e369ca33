#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "pipeline/data/lines/line_reader.hpp"

namespace distilld {

/// Consecutive lines of one file, without blank ones.
struct LineBlock {
    struct Line {
        std::size_t begin = 0;
        std::size_t length = 0;
        std::uint64_t number = 0;  ///< in the file, from 1
    };

    std::size_t file = 0;  ///< which of the files
    std::vector<char> bytes;
    std::vector<Line> lines;
    double share_before = 0;  ///< share of all files' bytes before the first line
    double share_after = 0;   ///< the same at the end of the last line, at most 1
    /// The error that stopped reading after these lines.
    std::optional<Error> error;

    [[nodiscard]] std::string_view text(const Line& line) const { return {bytes.data() + line.begin, line.length}; }
    void clear();
};

/// Reads files, in order, into blocks of lines. One thread.
class LineBlocks {
  public:
    /// `padding` bytes after each line of a block are readable. `files` must outlive this.
    LineBlocks(std::span<const std::filesystem::path> files, std::size_t max_line_bytes, std::size_t padding);

    /// Fills `block` with one or more lines, up to about kBlockBytes, or with an error. False at the end. Must not be
    /// called after an error.
    bool next(LineBlock& block);

    /// Bytes of the files on the disk, as far as known.
    [[nodiscard]] std::uint64_t total_bytes() const noexcept { return total_bytes_; }

    static constexpr std::size_t kBlockBytes = 256U << 10;

  private:
    Result<bool> open_next_file();
    Result<bool> add_line(LineBlock& block);
    [[nodiscard]] double share() const;

    std::span<const std::filesystem::path> files_;
    std::size_t max_line_bytes_;
    std::size_t padding_;
    std::size_t opened_ = 0;  ///< files that were opened so far
    std::optional<LineReader> reader_;
    std::vector<std::uint64_t> sizes_;
    std::uint64_t total_bytes_ = 0;
    std::uint64_t bytes_of_finished_files_ = 0;
};

}  // namespace distilld
