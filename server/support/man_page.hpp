#pragma once

#include <string>

#include "server/support/command_tree.hpp"

namespace distilld {

/// The manual page, section 1, of a program with all its commands. `version` stands at its foot; no date does, so that
/// each build writes the same page.
[[nodiscard]] std::string man_page(const CommandNode& program, const std::string& version, const std::string& see_also);

}  // namespace distilld
