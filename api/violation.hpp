#pragma once

#include <string>

namespace distilld::api {

/// One thing that is wrong with a request: with its JSON, or with `parameter` of its query or head. `pointer` is the
/// JSON pointer (RFC 6901) of the field, "" for the document as a whole. `code`: malformed_json, too_large,
/// duplicate_key, unknown_field, required, wrong_type, out_of_range, invalid_value, conflict (contradicts another
/// field), unsupported.
struct Violation {
    std::string pointer;
    std::string code;
    std::string detail;       ///< for a person, without the pointer
    std::string parameter{};  ///< names what is wrong in place of `pointer`, where it is not empty
};

}  // namespace distilld::api
