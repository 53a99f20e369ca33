#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

/// A command line as data: what manual pages and shell completions are written from. It is taken from the very parser
/// that reads the arguments, so that it cannot say anything else.
namespace distilld {

/// What stands behind an option, or as an argument by itself.
struct CommandValue {
    enum class Kind { none, text, words, file, folder };
    Kind kind = Kind::none;
    std::string name;                ///< "N", "FILE"; of words "text|json"
    std::vector<std::string> words;  ///< all that it may be (Kind::words)
    std::string range;               ///< "1 to 1024", or empty
};

struct CommandOption {
    std::vector<std::string> names;  ///< "-o", "--output"; of an argument by itself its name alone: "SPEC"
    CommandValue value;
    std::string help;
    std::string initial;  ///< its default, or empty
    bool required = false;
    bool repeated = false;  ///< may be given more than once
};

struct CommandNode {
    std::vector<std::string> path;  ///< "distilld", "jobs", "list"
    std::string description;
    std::string footer;
    std::vector<std::string> examples;  ///< lines as they are typed
    std::vector<CommandOption> options;
    std::vector<CommandOption> arguments;  ///< in order
    std::vector<CommandNode> commands;     ///< in order
};

/// Lines as they are typed, which the help of a command ends with, in front of its footer.
void add_examples(CLI::App& command, const std::vector<std::string>& lines);

[[nodiscard]] CommandNode command_tree(const CLI::App& app);
[[nodiscard]] CommandOption described(const CLI::Option& option);

/// What help and manual page say of an option: its help, range and default. Of an argument by itself also
/// what words it may be.
[[nodiscard]] std::string option_text(const CommandOption& option, bool is_argument);

/// "distilld jobs list"
[[nodiscard]] std::string full_name(const CommandNode& node);

/// The node and all below it, each before those that it holds.
[[nodiscard]] std::vector<const CommandNode*> all_commands(const CommandNode& node);

}  // namespace distilld
