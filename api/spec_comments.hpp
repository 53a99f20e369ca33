#pragma once

#include <string>
#include <string_view>

namespace distilld::api {

/// JSON text with blanks in place of its comments, // to the end of the line and /* … */, and of commas behind the last
/// member of an object or array, so that offsets and lines stay what they are. A file that people keep may have them;
/// what goes over the wire has none. Text that is not JSON otherwise stays as it is.
[[nodiscard]] std::string without_comments(std::string_view text);

}  // namespace distilld::api
