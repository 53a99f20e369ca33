#include "server/support/command_tree.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/algorithm/string/replace.hpp>
#include <sstream>
#include <string_view>

#include "base/join.hpp"

namespace distilld {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream in(text);
    for (std::string part; std::getline(in, part, separator);) {
        parts.push_back(part);
    }
    return parts;
}

/// CLI11 names a type together with its checks: "TEXT:{text,json}", "UINT:INT in [1 - 1024]", "TEXT:DIR".
CommandValue value_of(const CLI::Option& option) {
    CommandValue value;
    if (option.get_items_expected_max() == 0) {
        return value;
    }
    value.kind = CommandValue::Kind::text;
    for (const auto& part : split(option.get_type_name(), ':')) {
        const bool first = value.name.empty();
        if (first) {
            value.name = part == "UINT" || part == "INT" || part == "FLOAT" ? "N" : part;
        }
        if (part.starts_with('{') && part.ends_with('}')) {
            value.kind = CommandValue::Kind::words;
            value.words = split(part.substr(1, part.size() - 2), ',');
            value.name = joined(value.words, "|");
        } else if (part == "DIR" || part == "FILE") {
            value.kind = part == "DIR" ? CommandValue::Kind::folder : CommandValue::Kind::file;
            value.name = part;
        } else if (const auto begin = part.find(" in ["); begin != std::string::npos && part.ends_with(']')) {
            value.range = part.substr(begin + 5, part.size() - begin - 6);
            boost::algorithm::replace_first(value.range, " - ", " to ");
        } else if (!first && std::ranges::all_of(part, [](char c) { return c >= 'A' && c <= 'Z'; })) {
            value.name += ":" + part;  // ADDRESS:PORT
        }
    }
    return value;
}

/// The examples in a footer from add_examples().
std::vector<std::string> examples_in(const std::string& footer) {
    std::vector<std::string> lines;
    for (const auto& line : split(footer, '\n')) {
        if (line.starts_with("  ")) {
            lines.push_back(line.substr(2));
        }
    }
    return lines;
}

CommandOption described(const CLI::Option& option) {
    CommandOption one;
    for (const auto& name : option.get_snames()) {
        one.names.push_back("-" + name);
    }
    for (const auto& name : option.get_lnames()) {
        one.names.push_back("--" + name);
    }
    if (one.names.empty()) {
        one.names.push_back(option.get_name(true));
    }
    one.value = value_of(option);
    one.help = option.get_description();
    one.initial = option.get_default_str();
    one.required = option.get_required();
    one.repeated = option.get_items_expected_max() > 1;
    return one;
}

CommandNode node_of(const CLI::App& app, std::vector<std::string> path) {
    path.push_back(app.get_name());
    CommandNode node;
    node.path = path;
    node.description = app.get_description();
    node.footer = app.get_footer();
    node.examples = examples_in(node.footer);
    for (const auto* option : app.get_options()) {
        (option->nonpositional() ? node.options : node.arguments).push_back(described(*option));
    }
    for (const auto* command : app.get_subcommands([](const CLI::App*) { return true; })) {
        node.commands.push_back(node_of(*command, path));
    }
    return node;
}

class HelpFormatter final : public CLI::Formatter {
  public:
    HelpFormatter() {
        label("Positionals", "Arguments");
        label("SUBCOMMAND", "COMMAND");
    }

    std::string make_option_name(const CLI::Option* option, bool /*is_positional*/) const override {
        return joined(described(*option).names, ",");
    }
    std::string make_option_opts(const CLI::Option* option) const override {
        const auto value = described(*option).value;
        return option->get_positional() || value.kind == CommandValue::Kind::none ? "" : " " + value.name;
    }
    std::string make_option_desc(const CLI::Option* option) const override {
        return option_text(described(*option), option->get_positional());
    }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> make_help_formatter() {
    return std::make_shared<HelpFormatter>();
}

std::string option_text(const CommandOption& option, bool is_argument) {
    std::string text = option.help;
    if (!option.value.range.empty()) {
        text += " (" + option.value.range + ")";
    }
    if (is_argument && option.value.kind == CommandValue::Kind::words) {
        text += ": " + option.value.name;
    }
    if (option.required && !is_argument) {
        text += "; must be given";
    }
    return option.initial.empty() ? text : text + "; default: " + option.initial;
}

void add_examples(CLI::App& command, const std::vector<std::string>& lines) {
    std::string footer = lines.size() == 1 ? "Example:\n" : "Examples:\n";
    for (const auto& line : lines) {
        footer += "  " + line + "\n";
    }
    command.footer(footer + "\n" + command.get_footer());
}

CommandNode command_tree(const CLI::App& app) {
    return node_of(app, {});
}

std::string full_name(const CommandNode& node) {
    return joined(node.path, " ");
}

std::vector<const CommandNode*> all_commands(const CommandNode& node) {
    std::vector<const CommandNode*> all{&node};
    for (const auto& command : node.commands) {
        const auto below = all_commands(command);
        all.insert(all.end(), below.begin(), below.end());
    }
    return all;
}

}  // namespace distilld
