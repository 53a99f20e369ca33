#include "pipeline/teacher/probe_tokens.hpp"

#include <algorithm>

#include "pipeline/teacher/probe_alignment.hpp"

namespace distilld {

std::shared_ptr<const TokenBatch> probe_tokens(std::uint32_t vocabulary, std::uint32_t rows, std::uint32_t columns) {
    constexpr std::uint32_t kCommon = 32;
    constexpr std::uint32_t kOther = 3;
    static constexpr std::uint32_t kFirst[] = {1, 2, 0};
    auto tokens = std::make_shared<TokenBatch>();
    tokens->rows = rows;
    tokens->columns = columns;
    const std::uint32_t modulus = std::max<std::uint32_t>(vocabulary, 1);
    const auto id = [modulus](std::uint32_t row, std::uint32_t column) {
        std::uint32_t chosen = column < kProbeColumns ? kFirst[column] : column * 7 % kCommon;
        if (column == kAlignmentColumn && row % kAlignmentRows == 1) {
            chosen = kOther;
        }
        return static_cast<std::int32_t>(chosen % modulus);
    };
    for (std::uint32_t row = 0; row < rows; ++row) {
        for (std::uint32_t column = 0; column < columns; ++column) {
            tokens->input_ids.push_back(id(row, column));
            tokens->labels.push_back(column + 1 < columns ? id(row, column + 1) : kIgnoredLabel);
        }
    }
    tokens->lengths.assign(rows, static_cast<std::int32_t>(columns));
    tokens->target_tokens = std::uint64_t{columns - 1} * rows;
    return tokens;
}

}  // namespace distilld
