#pragma once

#include <string>
#include <string_view>

#include "base/error.hpp"

namespace distilld {

/// A regular expression of Oniguruma's Ruby dialect as one of PCRE2 with the options UTF, UCP and MULTILINE. Errors
/// name the part that has no counterpart.
Result<std::string> to_pcre2(std::string_view expression);

}  // namespace distilld
