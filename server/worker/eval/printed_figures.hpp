#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace distilld {

inline constexpr std::size_t kMaxFigures = 64;
inline constexpr std::size_t kMaxFigureName = 128;  ///< bytes

/// The numbers that eval.command has printed: of the JSON object that is all it printed, or else its last line. Members
/// of objects inside have names joined by "/", as in results/arc/acc. In names, all but letters, digits and . _ : -
/// becomes _. Other values than numbers are left out. An error says what is wrong with the text, without naming the
/// program: no object, no number, one that is not finite, too many, a name that is too long or not unique.
[[nodiscard]] Result<std::map<std::string, double>> read_figures(std::string_view printed);

}  // namespace distilld
