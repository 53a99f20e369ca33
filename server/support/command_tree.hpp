#pragma once

#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class FormatterBase;
}  // namespace CLI

/// A command line as data, for manual pages and shell completions. It is derived from the argument parser, so that they
/// always agree.
namespace distilld {

/// The value of an option, or a positional argument.
struct CommandValue {
    enum class Kind { none, text, words, file, folder };
    Kind kind = Kind::none;
    std::string name;                ///< "N", "FILE"; for words "text|json"
    std::vector<std::string> words;  ///< all possible values (Kind::words)
    std::string range;               ///< "1 to 1024", or empty
};

struct CommandOption {
    std::vector<std::string> names;  ///< "-o", "--output"; for a positional argument its name: "SPEC"
    CommandValue value;
    std::string help;
    std::string initial;  ///< the default, or empty
    bool required = false;
    bool repeated = false;  ///< may be given more than once
};

struct CommandNode {
    std::vector<std::string> path;  ///< "distilld", "jobs", "list"
    std::string description;
    std::string footer;
    std::vector<std::string> examples;  ///< lines as typed
    std::vector<CommandOption> options;
    std::vector<CommandOption> arguments;  ///< in order
    std::vector<CommandNode> commands;     ///< in order
};

/// Adds example lines to the end of a command's help, before its footer.
void add_examples(CLI::App& command, const std::vector<std::string>& lines);

/// Writes --help in the words of the manual page: the help of an option, then kind, range and default of its value. Set
/// it before commands are added, which inherit it.
[[nodiscard]] std::shared_ptr<CLI::FormatterBase> make_help_formatter();

[[nodiscard]] CommandNode command_tree(const CLI::App& app);

/// The text of an option in help and manual page: its help, range and default, and for a positional argument its
/// possible words.
[[nodiscard]] std::string option_text(const CommandOption& option, bool is_argument);

/// "distilld jobs list"
[[nodiscard]] std::string full_name(const CommandNode& node);

/// The node and all its descendants, parents first.
[[nodiscard]] std::vector<const CommandNode*> all_commands(const CommandNode& node);

}  // namespace distilld
