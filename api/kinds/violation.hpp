#pragma once

#include <string>

namespace distilld::api {

/// A violation of a request: in its JSON, or in `parameter` of its query or header. `pointer` is the JSON pointer (RFC
/// 6901) of the field, "" for the document as a whole. `code`: malformed_json, too_large, duplicate_key, unknown_field,
/// required, wrong_type, out_of_range, invalid_value, conflict (contradicts another field), unsupported.
struct Violation {
    std::string pointer;
    std::string code;
    std::string detail;       ///< for people, without the pointer
    std::string parameter{};  ///< used instead of `pointer` if not empty
};

}  // namespace distilld::api
