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

/// What may stand in place of the last of the words behind the program's name, a line each: the word, and behind a tab
/// what it is. `:file` and `:directory` stand for what the shell finds itself.
[[nodiscard]] std::string candidates(const CommandNode& program, std::span<const std::string> words);

/// A script for the shell that shows what `PROGRAM __complete WORDS` prints, which are candidates().
[[nodiscard]] std::string completion_script(const std::string& program, Shell shell);

}  // namespace distilld
