#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace distilld {

/// Special ids of a tokenizer: begin and end of a text, padding. Absent: none.
struct SpecialTokens {
    std::optional<std::int64_t> bos;
    std::vector<std::int64_t> eos;
    std::optional<std::int64_t> pad;

    bool operator==(const SpecialTokens&) const = default;
};

}  // namespace distilld
