#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace distilld {

/// Which documents lie in which row, side by side.
struct PackedRows {
    std::vector<std::uint64_t> documents;  ///< of all rows, one row after the other
    std::vector<std::uint64_t> begins;     ///< [rows + 1] where each row begins in `documents`; the end last

    [[nodiscard]] std::uint64_t row_count() const { return begins.size() - 1; }
    [[nodiscard]] std::span<const std::uint64_t> row(std::uint64_t row) const {
        return std::span(documents).subspan(begins.at(row), begins.at(row + 1) - begins.at(row));
    }
};

/// Documents among which rows are filled, so that a row's documents stand near each other in the file.
inline constexpr std::uint64_t kPackingWindow = 8192;

/// Puts documents of these lengths (1 to `capacity` positions) into rows of `capacity` positions, each whole: of every
/// `window` documents in turn the longest first, into the fullest row that has room for it (best fit decreasing, within
/// 11/9 of the fewest rows that are possible; D. S. Johnson 1973). Documents of a row stand in their order, rows in
/// that of their first documents. A pure function of its arguments.
[[nodiscard]] PackedRows pack_rows(std::span<const std::uint32_t> lengths, std::uint32_t capacity,
                                   std::uint64_t window = kPackingWindow);

}  // namespace distilld
