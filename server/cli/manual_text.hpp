#pragma once

#include "server/support/man_page.hpp"

namespace CLI {
class App;
}

namespace distilld::cli {

/// Gives each command of the program its examples, which stand in its help and in the manual page.
void add_all_examples(CLI::App& app);

/// What the manual page says beside the commands.
[[nodiscard]] ManualSections manual_sections();

}  // namespace distilld::cli
