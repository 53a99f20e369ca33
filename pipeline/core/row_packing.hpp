#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace distilld {

/// The documents of each row, side by side.
struct PackedRows {
    std::vector<std::uint64_t> documents;  ///< of all rows, one row after the other
    std::vector<std::uint64_t> begins;     ///< [rows + 1] where each row begins in `documents`; the end last

    [[nodiscard]] std::uint64_t row_count() const { return begins.size() - 1; }
    [[nodiscard]] std::span<const std::uint64_t> row(std::uint64_t row) const {
        return std::span(documents).subspan(begins.at(row), begins.at(row + 1) - begins.at(row));
    }
};

/// Documents per window of packing, so that documents of a row are close to each other in the file.
inline constexpr std::uint64_t kPackingWindow = 8192;

/// Puts whole documents of these lengths (1 to `capacity` positions) into rows of `capacity` positions. In each window
/// of `window` documents, the longest goes first, into the fullest row with enough space (best fit decreasing, within
/// 11/9 of the minimum number of rows; D. S. Johnson 1973). Documents of a row keep their order; rows are in the order
/// of their first documents. A pure function of its arguments.
[[nodiscard]] PackedRows pack_rows(std::span<const std::uint32_t> lengths, std::uint32_t capacity,
                                   std::uint64_t window = kPackingWindow);

}  // namespace distilld
