#include "server/cli/command_line.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <deque>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <span>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "api/kinds/text_checks.hpp"
#include "api/named_paths.hpp"
#include "base/json_text.hpp"
#include "distilld_version.hpp"
#include "server/cli/manual_text.hpp"
#include "server/settings/settings_print.hpp"
#include "server/support/completions.hpp"
#include "server/support/man_page.hpp"

namespace distilld::cli {
namespace {

void add_teacher(CLI::App& app, TeacherOptions& options) {
    CLI::App* teacher = add_command(app, "teacher", "Serve a model as a teacher endpoint");
    add_teacher_options(*teacher, options);
    teacher->get_option("MODEL")->check([](const std::string& model) {
        std::error_code failed;
        return std::filesystem::exists(model, failed) ? "" : model + " does not exist" + api::hub_hint(model);
    });
}

void add_completions(CLI::App& app, Shell& shell) {
    std::map<std::string, Shell> shells;
    for (const auto& known : kShellNames) {
        shells.emplace(known.text, known.value);
    }
    add_command(app, "completion", "Write the completion script of a shell to stdout")
        ->add_option_function<std::string>(
            "SHELL", [&shell](const std::string& name) { shell = value_of(kShellNames, name).value_or(shell); },
            "name of the shell")
        ->check(CLI::IsMember(shells))
        ->required();
    add_command(app, "man", "Write the manual page to stdout, as man -l reads it");
}

/// The command line of `serve`. CLI11 writes into it, so it must not move while options exist.
struct ServeFlags {
    struct Given {
        std::string name;  ///< dotted name of a setting
        const CLI::Option* option = nullptr;
        std::vector<std::string> words;
        bool boolean = false;
    };
    std::string config;
    bool print_config = false;
    std::deque<Given> settings;
};

std::map<std::string, std::string> our_environment() {
    std::map<std::string, std::string> variables;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const std::string_view text(*entry);
        const auto equals = text.find('=');
        if (text.starts_with("DISTILLD_") && equals != std::string_view::npos) {
            variables.emplace(text.substr(0, equals), text.substr(equals + 1));
        }
    }
    return variables;
}

/// "jobs that run at once (1 to 1024)"
std::string help_of(const Setting& setting) {
    const auto shape = setting.kind->shape();
    const auto type = setting.kind->type_name();
    auto help = std::string(setting.help);
    if (shape == api::FieldShape::list_of_texts) {
        help += "; may be repeated";
    } else if (!setting.kind->path_use() && setting.kind->plain_values() != type && !type.starts_with('{')) {
        help += " (" + setting.kind->plain_values() + ")";
    }
    return setting.required.empty() ? help : help + "; must be given, here or otherwise";
}

void add_flag(CLI::App& serve, const Setting& setting, ServeFlags::Given& given) {
    const auto name = flag_name(setting);
    const auto shape = setting.kind->shape();
    CLI::Option* option = nullptr;
    if (shape == api::FieldShape::boolean) {
        option = serve.add_flag(name, given.boolean, help_of(setting));
    } else {
        option = serve.add_option(name, given.words, help_of(setting))
                     ->allow_extra_args(false)
                     ->type_name(setting.kind->type_name());
        if (shape != api::FieldShape::list_of_texts) {
            option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::Throw);
        }
        const auto initial = setting.kind.show(ServiceSettings{});
        const auto text = initial.is_string() ? std::string(initial.get_string()) : to_text(initial);
        if (!text.empty() && shape != api::FieldShape::list_of_texts) {
            option->default_str(text);
        }
    }
    given.option = option;
}

void add_serve_options(CLI::App& serve, ServeFlags& flags) {
    serve
        .add_option("--config", flags.config,
                    "TOML file with settings; environment variables DISTILLD_SECTION_NAME and flags take precedence")
        ->type_name("FILE");
    serve.add_flag("--print-config", flags.print_config,
                   "print the effective settings as such a file, with the source of each, and exit");
    for (const auto& section : settings_table().sections) {
        for (const auto& setting : section.settings) {
            auto& given = flags.settings.emplace_back();
            given.name = dotted_name(section, setting);
            add_flag(serve, setting, given);
        }
    }
}

/// The settings from file, environment and flags, once the command line is parsed.
LoadedSettings serve_settings(const ServeFlags& flags) {
    SettingsInput input;
    input.file = flags.config;
    input.environment = our_environment();
    input.working_directory = std::filesystem::current_path();
    for (const auto& given : flags.settings) {
        if (given.option->count() == 0) {
            continue;
        }
        const bool boolean = settings_table().setting(given.name)->kind->shape() == api::FieldShape::boolean;
        input.flags[given.name] = boolean ? std::vector<std::string>{given.boolean ? "true" : "false"} : given.words;
    }
    return load_settings(input);
}

/// `serve`, or the output of --print-config.
ParsedLine serve_line(const ServeFlags& flags) {
    ParsedLine line;
    const auto loaded = serve_settings(flags);
    if (!loaded) {
        line.exit_code = kWrongUsage;
        line.err = describe(loaded.error()) + "\n";
        return line;
    }
    if (flags.print_config) {
        line.out = settings_toml(*loaded);
        for (const auto& warning : loaded->warnings) {
            line.err += "warning: " + warning + "\n";
        }
        return line;
    }
    for (const auto& missing : loaded->missing) {
        line.exit_code = kWrongUsage;
        line.err += missing + "\n";
    }
    if (loaded->missing.empty()) {
        line.command = ServeCommand{*loaded};
    }
    return line;
}

/// Adds each command's examples to its help and to the manual page.
void add_all_examples(CLI::App& app) {
    for (const auto& [command, lines] : command_examples()) {
        CLI::App* at = &app;
        for (const auto& name : command) {
            at = at->get_subcommand(name);
        }
        add_examples(*at, lines);
    }
}

/// The first option that the command does not have, with the nearest that it has.
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

/// The error for the first word in a command's place that is not a command; nullopt: there is none.
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

/// One line for an error of CLI11, in the terms of the command that was called.
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

ParsedLine usage_error(const std::string& message) {
    ParsedLine line;
    line.exit_code = kWrongUsage;
    line.err = "distilld: " + message + "\n";
    return line;
}

}  // namespace

ParsedLine parse_command_line(std::vector<std::string> arguments) {
    CLI::App app{"distilld: trains a small student language model to imitate a large teacher", "distilld"};
    app.formatter(make_help_formatter());
    app.set_version_flag("--version", std::string("distilld ") + kVersion);
    app.require_subcommand(1);
    app.footer(kExitCodesHelp);
    ServeFlags serve;
    RunCommand run;
    SpecFlags spec_flags;
    TeacherCommand teacher;
    JobsCommand jobs;
    HealthcheckCommand healthcheck;
    add_serve_options(*add_command(app, "serve", "Serve the REST API and run the submitted jobs"), serve);
    add_run_options(*add_command(app, "run", "Run one job in the foreground"), run, spec_flags);
    GenerateFlags generate;
    add_generate_options(
        *add_command(app, "generate", "Write a teacher's answers for a dataset into a store, or continue one"),
        generate);
    add_teacher(app, teacher.options);
    add_jobs_options(*add_command(app, "jobs", "Submit, list, watch and cancel jobs of a running service"), jobs);
    KeysCommand keys;
    add_keys_options(*add_command(app, "keys", "Make, list and revoke the keys of a service"), keys);
    StoreCommand store;
    add_store_options(*add_command(app, "store", "Inspect, verify, export and import stored teacher outputs"), store);
    SpecCommand spec;
    add_spec_options(*add_command(app, "spec", "Draft, check and explain job specs; needs no service"), spec);
    TokenizeCommand tokenize;
    CLI::App* tokenizing =
        add_command(app, "tokenize", "Tokenize standard input: a line of text in, an array of ids out");
    tokenizing->add_option("FOLDER", tokenize.folder, "folder with a tokenizer.json")->type_name("DIR")->required();
    tokenizing->add_flag("--decode", tokenize.decode, "read arrays of ids and write their text");
    NodesCommand nodes;
    add_nodes_options(*add_command(app, "nodes", "List the machines that run jobs of a service"), nodes.connection,
                      nodes.json);
    CLI::App* checking = add_command(app, "healthcheck", "Ask a running service whether it is ready; exit code 0 or 1");
    add_connection_options(*checking, healthcheck.connection);
    Shell shell = Shell::bash;
    add_completions(app, shell);
    add_all_examples(app);

    if (!arguments.empty() && arguments.front() == "__complete") {
        ParsedLine line;
        line.out = candidates(command_tree(app), std::span(arguments).subspan(1));
        return line;
    }
    if (const auto unknown = unknown_command(app, arguments)) {
        return usage_error(*unknown);
    }
    ParsedLine line;
    const auto take_run = [&line](const Result<RunCommand>& made) {
        if (made) {
            line.command = *made;
        } else {
            line = usage_error(made.error().message);
        }
    };
    const std::pair<const char*, std::function<void()>> takers[] = {
        {"serve", [&] { line = serve_line(serve); }},
        {"run", [&] { take_run(run_command(run, spec_flags)); }},
        {"generate", [&] { take_run(generate_command(generate)); }},
        {"teacher", [&] { line.command = teacher; }},
        {"jobs",
         [&] {
             take_environment(jobs.connection);
             line.command = jobs;
         }},
        {"keys", [&] { line.command = keys; }},
        {"store", [&] { line.command = store; }},
        {"spec", [&] { line.command = spec; }},
        {"tokenize", [&] { line.command = tokenize; }},
        {"nodes",
         [&] {
             take_environment(nodes.connection);
             line.command = nodes;
         }},
        {"healthcheck",
         [&] {
             take_environment(healthcheck.connection);
             line.command = healthcheck;
         }},
        {"completion", [&] { line.out = completion_script(app.get_name(), shell); }},
        {"man", [&] { line.out = man_page(command_tree(app), kVersion, manual_sections()); }},
    };
    for (const auto& [name, take] : takers) {
        app.get_subcommand(name)->callback(take);
    }
    try {
        app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // as CLI11 takes a vector
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() != 0) {
            return ParsedLine{std::nullopt, kWrongUsage, "", describe_wrong_usage(app, error, arguments) + "\n"};
        }
        std::ostringstream out;
        app.exit(error, out, out);
        return ParsedLine{std::nullopt, kDone, out.str(), ""};
    }
    return line;
}

}  // namespace distilld::cli
