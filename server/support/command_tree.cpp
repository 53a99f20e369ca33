#include "server/support/command_tree.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/algorithm/string/join.hpp>
#include <sstream>
#include <string_view>

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
        if (value.name.empty()) {
            value.name = part;
        }
        if (part.starts_with('{') && part.ends_with('}')) {
            value.kind = CommandValue::Kind::words;
            value.words = split(part.substr(1, part.size() - 2), ',');
            value.name = boost::algorithm::join(value.words, "|");
        } else if (part == "DIR" || part == "FILE") {
            value.kind = part == "DIR" ? CommandValue::Kind::folder : CommandValue::Kind::file;
            value.name = part;
        } else if (const auto begin = part.find(" in ["); begin != std::string::npos && part.ends_with(']')) {
            value.range = part.substr(begin + 5, part.size() - begin - 6);
        }
    }
    return value;
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
    for (const auto* option : app.get_options()) {
        (option->nonpositional() ? node.options : node.arguments).push_back(described(*option));
    }
    for (const auto* command : app.get_subcommands([](const CLI::App*) { return true; })) {
        node.commands.push_back(node_of(*command, path));
    }
    return node;
}

}  // namespace

CommandNode command_tree(const CLI::App& app) {
    return node_of(app, {});
}

std::string full_name(const CommandNode& node) {
    return boost::algorithm::join(node.path, " ");
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
