#pragma once

#include <string>
#include <vector>

#include "server/support/command_tree.hpp"

namespace distilld {

struct ManualEntry {
    std::string name;
    std::string meaning;
};

/// Sections of a manual page besides the commands.
struct ManualSections {
    std::string see_also;
    std::vector<ManualEntry> environment{};  ///< variables
    std::vector<ManualEntry> files{};
};

/// The manual page (section 1) of a program with all its commands. Its footer has `version` but no date, so that each
/// build writes the same page.
[[nodiscard]] std::string man_page(const CommandNode& program, const std::string& version,
                                   const ManualSections& sections);

}  // namespace distilld
