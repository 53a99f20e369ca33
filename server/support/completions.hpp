#pragma once

#include <array>
#include <span>
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

/// Candidates for the last of the words after the program's name, one per line: the word, a tab, its meaning. `:file`
/// and `:directory` tell the shell to complete paths.
[[nodiscard]] std::string candidates(const CommandNode& program, std::span<const std::string> words);

/// A script that makes the shell offer what `PROGRAM __complete WORDS` prints, the output of candidates().
[[nodiscard]] std::string completion_script(const std::string& program, Shell shell);

}  // namespace distilld
