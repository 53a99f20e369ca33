#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

/// JSON text: strict reading of what people write, and writing of what people read.
namespace distilld {

/// Where JSON text is not JSON: `offset` in bytes; `reason` with line and column.
struct JsonTextError {
    std::size_t offset = 0;
    std::string reason;
};

/// Reads one JSON document; UTF-8 is checked, nesting is bounded by `max_depth`.
boost::system::result<boost::json::value, JsonTextError> parse_json_text(std::string_view text, std::size_t max_depth);

/// JSON pointers of keys that stand more than once in their object (which parsing drops silently), in order. The text
/// must be JSON within `max_depth`.
std::vector<std::string> duplicate_keys(std::string_view text, std::size_t max_depth);

/// One reference token of a JSON pointer (RFC 6901), escaped.
std::string escape_pointer_token(std::string_view token);

/// The tokens of a JSON pointer, unescaped; an error when it is not one.
Result<std::vector<std::string>> split_pointer(std::string_view pointer);

/// "a string", "an object", …: what a value is, for messages.
[[nodiscard]] std::string kind_name(const boost::json::value& value);

/// The value as compact JSON. Numbers are written as people write them, in the fewest digits that read back to the same
/// double: 0.001 and 60, not 1E-3 and 6E1; exponents only below 1e-7 and from 1e17 on. JSON has no NaN and no infinity:
/// null stands for them. Nor has it bytes that are not UTF-8: U+FFFD stands for each, so that whatever a text was made
/// of (a path, an answer, a program's output), the result can be read.
[[nodiscard]] std::string to_text(const boost::json::value& value);

/// A number as to_text() writes it.
[[nodiscard]] std::string number_text(double number);

}  // namespace distilld
