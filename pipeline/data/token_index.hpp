#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/describes.hpp"
#include "base/error.hpp"

namespace distilld {

/// What the files of one part of a dataset hold.
struct PartIndex {
    std::uint64_t tokens = 0;
    std::uint32_t ids_sum = 0;  ///< of the checksums behind the ids
    bool has_labels = false;
    std::uint32_t labels_sum = 0;
    std::uint64_t rows = 0;
    std::uint32_t rows_sum = 0;
    std::uint64_t token_count = 0;  ///< input positions of the rows
    std::uint64_t tokens_read = 0;  ///< and with those that no row has
    bool has_text = false;
    bool names_teachers = false;
    std::string hash;
};

/// What a folder of tokens holds: its index.json.
struct TokenIndex {
    std::uint32_t sequence_length = 0;
    bool trims = false;
    std::vector<PartIndex> parts;
    std::uint64_t order_rows = 0;  ///< 0: there is no order
    std::uint32_t order_sum = 0;
};

BOOST_DESCRIBE_STRUCT(PartIndex, (),
                      (tokens, ids_sum, has_labels, labels_sum, rows, rows_sum, token_count, tokens_read, has_text,
                       names_teachers, hash))

BOOST_DESCRIBE_STRUCT(TokenIndex, (), (sequence_length, trims, parts, order_rows, order_sum))

/// A line of JSON, and a line with its CRC-32C.
[[nodiscard]] std::string index_text(const TokenIndex& index);

/// Reads what index_text() wrote. The error names the file.
[[nodiscard]] Result<TokenIndex> read_index(const std::filesystem::path& file);

}  // namespace distilld
