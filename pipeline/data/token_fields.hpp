#pragma once

#include <simdjson.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

/// Fields of a JSONL line that hold token ids. For the parser of lines, because it includes simdjson.
namespace distilld {

/// "a string", "null".
[[nodiscard]] std::string type_name(simdjson::dom::element element);

struct TokenField {
    std::uint32_t vocabulary_size = 0;  ///< ids at or above it are refused; 0 = no check
    bool may_be_ignored = false;        ///< kIgnoredLabel is an entry, too
};

/// Appends the entries of an array. Errors name the entry.
Result<void> read_token_ids(std::string_view name, simdjson::dom::element element, const TokenField& field,
                            std::vector<std::int32_t>& out);

/// Refuses an attention mask with zeros.
Result<void> check_attention_mask(simdjson::dom::element element);

}  // namespace distilld
