#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"

namespace distilld {

/// Translates a regular expression of Oniguruma's Ruby dialect to PCRE2 with the options UTF, UCP and MULTILINE. Errors
/// name the part without a counterpart.
Result<std::string> to_pcre2(std::string_view expression);

}  // namespace distilld
