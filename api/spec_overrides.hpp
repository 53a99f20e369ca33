#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"

/// Changes that the command line lays over a job spec before it is validated.
namespace distilld::api {

/// A JSON pointer and the text of a value, as `--set /training/max_steps=100` gives them.
using Override = std::pair<std::string, std::string>;

/// Lays overrides over a JSON document, in order, and gives the new document. The value text is read as JSON; what is
/// not JSON is taken as a string. Missing objects on the way are made; null removes the field; an array takes an index
/// or "-" (append). An error names the pointer: not a pointer, a parent that is neither object nor array, an index out
/// of range; a document that is not JSON or has a key twice is an error too.
[[nodiscard]] Result<std::string> apply_overrides(std::string_view json_text, const std::vector<Override>& overrides);

/// The value that the text of an override stands for.
[[nodiscard]] boost::json::value value_of_override(const std::string& text);

/// Splits "training.max_steps=4", or "/training/max_steps=4", at the first equals sign.
[[nodiscard]] Result<Override> parse_override(std::string_view text);

}  // namespace distilld::api
