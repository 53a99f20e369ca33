#pragma once

#include <string>
#include <vector>

#include "server/support/man_page.hpp"

namespace distilld::cli {

struct CommandExamples {
    std::vector<std::string> command;  ///< {"jobs", "list"}
    std::vector<std::string> lines;    ///< as typed
};

/// The examples of each command.
[[nodiscard]] const std::vector<CommandExamples>& command_examples();

/// The text of the manual page besides the commands.
[[nodiscard]] ManualSections manual_sections();

}  // namespace distilld::cli
