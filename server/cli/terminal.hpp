#pragma once

#include <functional>

namespace distilld::cli {

/// Columns of a terminal, asked for each line because its window may change; empty: not a terminal.
using TerminalWidth = std::function<unsigned()>;

/// For stdout.
[[nodiscard]] TerminalWidth terminal_width();

}  // namespace distilld::cli
