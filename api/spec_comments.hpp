#pragma once

#include <string>
#include <string_view>

namespace distilld::api {

/// Replaces comments (// to the end of the line, /* … */) and trailing commas in JSON text with blanks, so that offsets
/// and lines do not change. For files; requests must not have them. Other text is not changed.
[[nodiscard]] std::string without_comments(std::string_view text);

}  // namespace distilld::api
