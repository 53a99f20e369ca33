#include "server/cli/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <filesystem>
#include <iterator>
#include <map>
#include <span>
#include <sstream>
#include <system_error>

#include "api/named_paths.hpp"
#include "api/spec_fields.hpp"
#include "api/text_checks.hpp"
#include "base/json_text.hpp"
#include "distilld_version.hpp"
#include "server/cli/manual_text.hpp"
#include "server/cli/serve_options.hpp"
#include "server/cli/wrong_usage.hpp"
#include "server/settings/settings_print.hpp"
#include "server/support/completions.hpp"
#include "server/support/help_formatter.hpp"
#include "server/support/man_page.hpp"

namespace distilld::cli {
namespace {

/// A flag of `run` that stands for a field of the spec. What may be given, and what for, its row of the table says.
struct SpecFlag {
    const char* name;
    const char* pointer;
    const char* replaces = nullptr;  ///< a field that goes when the flag is given
    const char* type = "VALUE";      ///< as the help names it; DIR: shells complete folders
};

/// In the order in which they are laid over the spec.
constexpr SpecFlag kSpecFlags[] = {
    {"--teacher-endpoint", "/teacher/endpoints"},
    {"--parallel", "/training/parallel", nullptr, "{true,false}"},
    {"--micro-batches", "/training/micro_batches"},
    {"--batch-size", "/training/batch_size"},
    {"--max-steps", "/training/max_steps", "/training/epochs"},
    {"--checkpoint-dir", "/checkpoint/dir", nullptr, "DIR"},
    {"--timeout", "/teacher/timeout_secs"},
    {"--output", "/output", nullptr, "DIR"},
};

/// What was given of them, and with --set.
struct SpecFlags {
    std::vector<std::string> sets;
    bool overwrite = false;
    std::array<std::vector<std::string>, std::size(kSpecFlags)> words;
};

const std::string kVersionLine = std::string("distilld ") + kVersion;

CLI::App* add_command(CLI::App& parent, const std::string& name, const std::string& description) {
    CLI::App* command = parent.add_subcommand(name, description);
    command->set_version_flag("--version", kVersionLine);
    return command;
}

/// "/training/micro_batches: micro-batches of one optimizer step (1–65536)", without Markdown.
std::string help_of(const SpecFlag& flag, const api::SpecField& field) {
    auto help = std::string(flag.pointer) + ": " + std::string(field.help);
    if (flag.replaces != nullptr) {
        help += std::string("; in place of ") + flag.replaces;
    }
    help += " (" + field.kind->values() + ")";
    std::erase(help, '`');
    return help;
}

void add_run(CLI::App& app, RunCommand& command, SpecFlags& flags) {
    CLI::App* run = add_command(app, "run", "Run one job in the foreground");
    run->add_option("SPEC", command.spec, "job spec, a JSON file; - = stdin")->type_name("FILE")->required();
    run->add_flag("--resume", command.resume,
                  "continue from the newest checkpoint, whatever the spec's resume and student.model say");
    add_set_option(*run, flags.sets);
    run->add_option("--trace", command.trace_file, "write a Chrome trace of what ran when")->type_name("FILE");
    run->add_option("--report", command.report_file, "write the figures of the finished run as JSON")
        ->type_name("FILE");
    run->add_option("--metrics-listen", command.metrics_listen,
                    "serve /metrics and /healthz at ADDRESS:PORT while the job runs; port 0 = any free one")
        ->type_name("ADDRESS:PORT");
    for (std::size_t i = 0; i < std::size(kSpecFlags); ++i) {
        const auto& flag = kSpecFlags[i];
        const auto* field = api::spec_table().field(flag.pointer);
        auto* option = run->add_option(flag.name, flags.words[i], help_of(flag, *field))
                           ->allow_extra_args(false)
                           ->type_name(flag.type)
                           ->group("Fields of the spec");
        if (field->kind->shape() != api::FieldShape::list_of_texts) {
            option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::Throw);
        }
    }
    run->add_flag("--overwrite", flags.overwrite,
                  "/overwrite: replace the checkpoints and the model of another run in the output folder")
        ->group("Fields of the spec");
}

/// What `generate` says of the spec in its own words.
struct GenerateFlags {
    RunCommand run;
    std::string store;
    std::string format;
    std::string values;
    std::vector<std::string> endpoints;
    std::vector<std::string> sets;
};

void add_generate(CLI::App& app, GenerateFlags& flags) {
    CLI::App* generate =
        add_command(app, "generate", "Write a teacher's answers for a dataset into a store, or continue one");
    generate
        ->add_option("SPEC", flags.run.spec,
                     "job spec, a JSON file (teacher, dataset and the student's tokenizer are used); - = stdin")
        ->type_name("FILE")
        ->required();
    generate->add_option("--store", flags.store, "folder of the store; in place of /teacher/store")->type_name("DIR");
    const auto names = [](const auto& choices) { return std::vector<std::string>(choices.begin(), choices.end()); };
    generate->add_option("--format", flags.format, "format of a new store; in place of /teacher/store_format")
        ->check(CLI::IsMember(names(kStoreFormatChoices)));
    generate->add_option("--values", flags.values, "precision of a new store; in place of /teacher/store_values")
        ->check(CLI::IsMember(names(kStoreValuesChoices)));
    generate
        ->add_option("--teacher-endpoint", flags.endpoints,
                     "URL of a teacher; may be repeated; in place of /teacher/endpoints")
        ->allow_extra_args(false)
        ->type_name("URL");
    add_set_option(*generate, flags.sets);
    generate->add_option("--trace", flags.run.trace_file, "write a Chrome trace of what ran when")->type_name("FILE");
    generate->add_option("--report", flags.run.report_file, "write the figures of the finished run as JSON")
        ->type_name("FILE");
    generate
        ->add_option("--metrics-listen", flags.run.metrics_listen,
                     "serve /metrics and /healthz at ADDRESS:PORT while the job runs; port 0 = any free one")
        ->type_name("ADDRESS:PORT");
}

/// `run` with the kind generate.
Result<RunCommand> generate_command(const GenerateFlags& flags) {
    RunCommand run = flags.run;
    for (const std::string& text : flags.sets) {
        auto one = api::parse_override(text);
        if (!one) {
            return one.error();
        }
        run.overrides.push_back(std::move(*one));
    }
    const auto set = [&run](const char* pointer, const boost::json::value& value) {
        run.overrides.emplace_back(pointer, to_text(value));
    };
    set("/kind", name_of(kJobKindNames, JobKind::generate));
    set("/metrics", boost::json::object());  // of a spec that is for training too
    if (!flags.endpoints.empty()) {
        set("/teacher/endpoints", boost::json::array(flags.endpoints.begin(), flags.endpoints.end()));
    }
    for (const auto& [pointer, text] :
         {std::pair{"/teacher/store", &flags.store}, std::pair{"/teacher/store_format", &flags.format},
          std::pair{"/teacher/store_values", &flags.values}}) {
        if (!text->empty()) {
            set(pointer, boost::json::string(*text));
        }
    }
    return run;
}

void add_teacher(CLI::App& app, TeacherOptions& options) {
    CLI::App* teacher = add_command(app, "teacher", "Serve a model folder as a teacher endpoint");
    add_teacher_options(*teacher, options);
    teacher->get_option("MODEL_DIR")->check([](const std::string& folder) {
        std::error_code failed;
        return std::filesystem::is_directory(folder, failed) ? "" : folder + " is not a folder" + api::hub_hint(folder);
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

/// Whether the words after a flag are of the field's type. Its range, and all of a text, the check of the spec judges,
/// together with everything else that is wrong.
Result<void> check_type(const SpecFlag& flag, const api::SpecField& field, const std::string& text) {
    JobSpec scratch;
    for (const auto& section : api::spec_table().sections) {
        if (section.open != nullptr) {
            section.open(scratch);
        }
    }
    std::vector<api::Violation> violations;
    const auto value = api::value_of_override(text);
    field.kind.read(value, scratch, {field.pointer, violations});
    const bool negative = value.is_int64() && value.get_int64() < 0;  // no field takes one
    for (const auto& violation : violations) {
        if (violation.code == "wrong_type" || negative) {
            return invalid_input(std::string(flag.name) + ": " + violation.pointer + ": " + violation.detail);
        }
    }
    return {};
}

/// The overrides in order: --set first, so that the flags of their own win.
Result<std::vector<api::Override>> overrides_of(const SpecFlags& flags) {
    std::vector<api::Override> overrides;
    for (const auto& text : flags.sets) {
        auto one = api::parse_override(text);
        if (!one) {
            return one.error();
        }
        overrides.push_back(std::move(*one));
    }
    for (std::size_t i = 0; i < std::size(kSpecFlags); ++i) {
        const auto& flag = kSpecFlags[i];
        if (flags.words[i].empty()) {
            continue;
        }
        const auto& field = *api::spec_table().field(flag.pointer);
        auto text = to_text(field.kind->value_of(flags.words[i]));
        if (const auto good = check_type(flag, field, text); !good) {
            return good.error();
        }
        overrides.emplace_back(flag.pointer, std::move(text));
        if (flag.replaces != nullptr) {
            overrides.emplace_back(flag.replaces, "null");
        }
    }
    if (flags.overwrite) {
        overrides.emplace_back("/overwrite", "true");
    }
    return overrides;
}

/// `serve`, or what --print-config prints.
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
    app.set_version_flag("--version", kVersionLine);
    app.require_subcommand(1);
    app.footer(kExitCodesHelp);
    ServeFlags serve;
    RunCommand run;
    SpecFlags spec_flags;
    TeacherCommand teacher;
    JobsCommand jobs;
    HealthcheckCommand healthcheck;
    add_serve_options(*add_command(app, "serve", "Serve the REST API and run the submitted jobs"), serve);
    add_run(app, run, spec_flags);
    GenerateFlags generate;
    add_generate(app, generate);
    add_teacher(app, teacher.options);
    add_jobs_options(*add_command(app, "jobs", "Submit, list, watch and cancel jobs of a running service"), jobs,
                     kVersionLine);
    KeysCommand keys;
    add_keys_options(*add_command(app, "keys", "Make, list and revoke the keys of a service"), keys, kVersionLine);
    StoreCommand store;
    add_store_options(*add_command(app, "store", "Inspect, verify, export and import stored teacher outputs"), store,
                      kVersionLine);
    SpecCommand spec;
    add_spec_options(*add_command(app, "spec", "Start, check and explain job specs; needs no service"), spec,
                     kVersionLine);
    TokenizeCommand tokenize;
    CLI::App* tokenizing =
        add_command(app, "tokenize", "Tokenize standard input: a line of text in, an array of ids out");
    tokenizing->add_option("FOLDER", tokenize.folder, "folder with a tokenizer.json")->type_name("DIR")->required();
    tokenizing->add_flag("--decode", tokenize.decode, "read arrays of ids and write their text");
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

    ParsedLine line;
    if (app.got_subcommand("serve")) {
        return serve_line(serve);
    }
    if (app.got_subcommand("teacher")) {
        line.command = teacher;
    }
    if (app.got_subcommand("jobs")) {
        take_environment(jobs.connection);
        line.command = jobs;
    }
    if (app.got_subcommand("keys")) {
        line.command = keys;
    }
    if (app.got_subcommand("store")) {
        line.command = store;
    }
    if (app.got_subcommand("spec")) {
        line.command = spec;
    }
    if (app.got_subcommand("tokenize")) {
        line.command = tokenize;
    }
    if (app.got_subcommand("healthcheck")) {
        take_environment(healthcheck.connection);
        line.command = healthcheck;
    }
    if (app.got_subcommand("completion")) {
        line.out = completion_script(app.get_name(), shell);
    }
    if (app.got_subcommand("man")) {
        line.out = man_page(command_tree(app), kVersion, manual_sections());
    }
    if (app.got_subcommand("generate")) {
        auto made = generate_command(generate);
        if (!made) {
            return usage_error(made.error().message);
        }
        line.command = std::move(*made);
    }
    if (app.got_subcommand("run")) {
        auto overrides = overrides_of(spec_flags);
        if (!overrides) {
            return usage_error(overrides.error().message);
        }
        run.overrides = std::move(*overrides);
        line.command = run;
    }
    return line;
}

}  // namespace distilld::cli
