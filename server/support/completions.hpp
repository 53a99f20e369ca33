#pragma once

#include <array>
#include <string>

#include "base/enum_names.hpp"
#include "server/support/command_tree.hpp"

namespace distilld {

enum class Shell { bash, zsh, fish };

inline constexpr std::array kShellNames{
    EnumName<Shell>{"bash", Shell::bash},
    EnumName<Shell>{"zsh", Shell::zsh},
    EnumName<Shell>{"fish", Shell::fish},
};

/// A script for the shell that completes commands, options, and values where they are words, files or folders.
[[nodiscard]] std::string completion_script(const CommandNode& program, Shell shell);

}  // namespace distilld
