#include "server/cli/wrong_usage.hpp"

#include <algorithm>
#include <iterator>

#include "api/text_checks.hpp"

namespace distilld::cli {
namespace {

/// The first option that the command has not, with the nearest that it has.
std::optional<std::string> unknown_option(const CLI::App& command, const std::vector<std::string>& arguments) {
    std::vector<std::string> known;
    for (const CLI::Option* option : command.get_options()) {
        std::ranges::transform(option->get_lnames(), std::back_inserter(known),
                               [](const std::string& name) { return "--" + name; });
    }
    for (const std::string& argument : arguments) {
        const std::string name = argument.substr(0, argument.find('='));
        if (name.starts_with("--") && std::ranges::find(known, name) == known.end()) {
            const auto near = api::closest(name, known);
            return "there is no option " + api::quote(name) + (near ? "; did you mean '" + *near + "'?" : "");
        }
    }
    return std::nullopt;
}

}  // namespace

std::optional<std::string> unknown_command(const CLI::App& app, const std::vector<std::string>& arguments) {
    const CLI::App* at = &app;
    for (const std::string& word : arguments) {
        const auto commands = at->get_subcommands([](const CLI::App*) { return true; });
        if (commands.empty() || word.starts_with("-")) {
            return std::nullopt;
        }
        const auto found = std::ranges::find(commands, word, [](const CLI::App* one) { return one->get_name(); });
        if (found == commands.end()) {
            std::vector<std::string> names;
            std::ranges::transform(commands, std::back_inserter(names),
                                   [](const CLI::App* one) { return one->get_name(); });
            const std::string program = at == &app ? "distilld" : "distilld " + at->get_name();
            const auto near = api::closest(word, names);
            return "there is no command " + api::quote(word) +
                   (near ? "; did you mean '" + program + " " + *near + "'?" : "; '" + program + " --help' lists them");
        }
        at = *found;
    }
    return std::nullopt;
}

std::string describe_wrong_usage(const CLI::App& app, const CLI::ParseError& error,
                                 const std::vector<std::string>& arguments) {
    const CLI::App* command = &app;
    std::string program = app.get_name();
    while (!command->get_subcommands().empty()) {
        command = command->get_subcommands().front();
        program += " " + command->get_name();
    }
    std::string message = error.what();
    if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
        message = unknown_option(*command, arguments).value_or(message);
    } else if (std::string(CLI::RequiredError::Subcommand(1).what()) == message) {
        message = unknown_option(*command, arguments).value_or("a command is missing");
    }
    const std::string help = message.ends_with('?') ? "" : "; '" + program + " --help' shows the usage";
    return program + ": " + message + help;
}

}  // namespace distilld::cli
