#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

/// JSON text: strict reading, and writing in a form for people.
namespace distilld {

/// The position at which text is not JSON: `offset` in bytes; `reason` with line and column.
struct JsonTextError {
    std::size_t offset = 0;
    std::string reason;
};

/// Reads one JSON document; checks UTF-8, and bounds nesting by `max_depth`.
boost::system::result<boost::json::value, JsonTextError> parse_json_text(std::string_view text, std::size_t max_depth);

/// JSON pointers of duplicate keys (which parsing drops silently), in order. The text must be JSON within `max_depth`.
std::vector<std::string> duplicate_keys(std::string_view text, std::size_t max_depth);

/// One reference token of a JSON pointer (RFC 6901), escaped.
std::string escape_pointer_token(std::string_view token);

/// The tokens of a JSON pointer, unescaped; an error if it is not a JSON pointer.
Result<std::vector<std::string>> split_pointer(std::string_view pointer);

/// The kind of a value, for messages: "a string", "an object", …
[[nodiscard]] std::string kind_name(const boost::json::value& value);

/// The value as compact JSON. Numbers have the fewest digits that read back to the same double, in plain notation:
/// 0.001 and 60, not 1E-3 and 6E1; exponents only below 1e-7 and from 1e17 on. NaN and infinity, which JSON lacks,
/// become null. Each byte that is not UTF-8 becomes U+FFFD, so the result is always valid JSON.
[[nodiscard]] std::string to_text(const boost::json::value& value);

/// A number in the form of to_text().
[[nodiscard]] std::string number_text(double number);

}  // namespace distilld
