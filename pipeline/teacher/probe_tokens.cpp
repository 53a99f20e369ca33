#include "pipeline/teacher/probe_tokens.hpp"

#include <algorithm>

namespace distilld {

std::shared_ptr<const TokenBatch> probe_tokens(std::uint32_t vocabulary, std::uint32_t rows, std::uint32_t columns) {
    constexpr std::uint32_t kCommon = 32;
    static constexpr std::uint32_t kFirst[] = {1, 2, 0};
    auto tokens = std::make_shared<TokenBatch>();
    tokens->rows = rows;
    tokens->columns = columns;
    const std::uint32_t modulus = std::max<std::uint32_t>(vocabulary, 1);
    const auto id = [modulus](std::uint32_t column) {
        const std::uint32_t chosen = column < kProbeColumns ? kFirst[column] : column * 7 % kCommon;
        return static_cast<std::int32_t>(chosen % modulus);
    };
    for (std::uint32_t row = 0; row < rows; ++row) {
        for (std::uint32_t column = 0; column < columns; ++column) {
            tokens->input_ids.push_back(id(column));
            tokens->labels.push_back(column + 1 < columns ? id(column + 1) : kIgnoredLabel);
        }
    }
    tokens->lengths.assign(rows, static_cast<std::int32_t>(columns));
    tokens->target_tokens = std::uint64_t{columns - 1} * rows;
    return tokens;
}

}  // namespace distilld
