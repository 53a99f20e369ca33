#pragma once

#include <functional>

namespace distilld::cli {

/// Columns of a terminal, asked anew for each line that is drawn, for its window may have changed; empty: there is no
/// terminal.
using TerminalWidth = std::function<unsigned()>;

/// Of the one that stdout is.
[[nodiscard]] TerminalWidth terminal_width();

}  // namespace distilld::cli
