#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

/// Strict reading of JSON text that people write.
namespace distilld::api {

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

}  // namespace distilld::api
