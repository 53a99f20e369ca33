#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"

/// Overrides of a job spec by the command line, before validation.
namespace distilld::api {

/// A JSON pointer and the text of a value, as in `--set /training/max_steps=100`.
using Override = std::pair<std::string, std::string>;

/// Applies overrides to a JSON document, in order. A value is parsed as JSON, or else taken as a string. Missing
/// objects on the way are created; null removes the field; an array takes an index or "-" (append). An error names the
/// pointer: not a pointer, a parent that is neither object nor array, an index out of range. A document that is not
/// JSON or has a duplicate key is an error too.
[[nodiscard]] Result<std::string> apply_overrides(std::string_view json_text, const std::vector<Override>& overrides);

/// The value that the text of an override denotes.
[[nodiscard]] boost::json::value value_of_override(const std::string& text);

/// Splits "training.max_steps=4", or "/training/max_steps=4", at the first equals sign.
[[nodiscard]] Result<Override> parse_override(std::string_view text);

}  // namespace distilld::api
