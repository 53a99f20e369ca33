#pragma once

#include <string>

namespace distilld {

/// The text as one shell word, quoted if necessary.
std::string shell_word(const std::string& text);

}  // namespace distilld
