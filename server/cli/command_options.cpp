#include "server/cli/command_options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <iterator>
#include <map>

#include "api/spec_fields.hpp"
#include "base/enum_names.hpp"
#include "base/json_text.hpp"
#include "distilld_version.hpp"

namespace distilld::cli {
namespace {

/// A flag of `run` that sets a field of the spec. Its type and help come from the field's row of the table.
struct SpecFlag {
    const char* name;
    const char* pointer;
    const char* replaces = nullptr;  ///< a field that the flag removes
    const char* type = "VALUE";      ///< as in the help; DIR: shells complete folders
};

/// In the order in which they are applied to the spec.
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

/// "/training/micro_batches: micro-batches of one optimizer step (1–65536)", without Markdown.
std::string help_of(const SpecFlag& flag, const api::SpecField& field) {
    auto help = std::string(flag.pointer) + ": " + std::string(field.help);
    if (flag.replaces != nullptr) {
        help += std::string("; overrides ") + flag.replaces;
    }
    help += " (" + field.kind->values() + ")";
    std::erase(help, '`');
    return help;
}

/// -o, for a command that prints text or JSON.
void add_form_option(CLI::App& command, bool& json, const std::vector<std::string>& forms) {
    command
        .add_option_function<std::string>(
            "-o,--output", [&json](const std::string& form) { json = form == "json"; }, "output format")
        ->type_name("FORM")
        ->check(CLI::IsMember(forms));
}

void add_set_option(CLI::App& command, std::vector<std::string>& sets) {
    command
        .add_option("--set", sets,
                    "set a field of the spec: training.max_steps=4 or /training/max_steps=4; may be repeated")
        ->allow_extra_args(false)
        ->type_name("FIELD=VALUE");
}

void add_watch_options(CLI::App& app, RunCommand& command) {
    app.add_option("--trace", command.trace_file, "write a Chrome trace of the stages")->type_name("FILE");
    app.add_option("--report", command.report_file, "write a summary of the finished run as JSON")->type_name("FILE");
    app.add_option("--metrics-listen", command.metrics_listen,
                   "serve /metrics and /healthz at ADDRESS:PORT while the job runs; port 0 = any free one")
        ->type_name("ADDRESS:PORT");
}

template <class Names, class Enum>
void add_choice(CLI::App& app, const std::string& name, const Names& names, Enum& target, const std::string& help) {
    std::map<std::string, Enum> values;
    for (const auto& known : names) {
        values.emplace(known.text, known.value);
    }
    app.add_option_function<std::string>(
           name, [&names, &target](const std::string& text) { target = value_of(names, text).value_or(target); }, help)
        ->check(CLI::IsMember(values))
        ->default_str(to_string(target));
}

CLI::App* add_store_command(CLI::App& store, const char* name, const char* description, StoreCommand& command) {
    CLI::App* one = add_command(store, name, description);
    add_form_option(*one, command.json, {"text", "json"});
    return one;
}

/// Adds an action on an existing store.
CLI::App* add_store_action(CLI::App& store, const char* name, const char* description, StoreCommand& command) {
    CLI::App* one = add_store_command(store, name, description, command);
    one->add_option("DIR", command.folder, "folder of the store")->type_name("DIR")->required();
    return one;
}

/// The format of a new store.
void add_format(CLI::App& app, StoreCommand& command) {
    add_choice(app, "--format", kEnumNames<StoreFormat>, command.wanted.format, "format of the new store");
    add_choice(app, "--values", kEnumNames<StoreValues>, command.wanted.values,
               "how the new store keeps logits or probabilities");
    app.add_option("-k,--entries", command.wanted.k, "most entries per position; 0 = as many as there are, or 64")
        ->check(CLI::Range(0, 65536))
        ->capture_default_str();
    app.add_option("--mass", command.wanted.p, "format topp: the probability that the entries reach together")
        ->check(CLI::Range(0.0, 1.0))
        ->capture_default_str();
    app.add_option("--samples", command.wanted.samples, "format sampled: draws per position")
        ->check(CLI::Range(1, 255))
        ->capture_default_str();
}

/// Whether the words after a flag have the field's type. The check of the spec judges ranges and texts, together with
/// all other errors.
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
    const bool negative = value.is_int64() && value.get_int64() < 0;  // no field takes a negative number
    for (const auto& violation : violations) {
        if (violation.code == "wrong_type" || negative) {
            return invalid_input(std::string(flag.name) + ": " + violation.pointer + ": " + violation.detail);
        }
    }
    return {};
}

}  // namespace

Result<std::vector<api::Override>> parse_sets(const std::vector<std::string>& sets) {
    std::vector<api::Override> overrides;
    for (const std::string& text : sets) {
        auto one = api::parse_override(text);
        if (!one) {
            return one.error();
        }
        overrides.push_back(std::move(*one));
    }
    return overrides;
}

CLI::App* add_command(CLI::App& parent, const std::string& name, const std::string& description) {
    CLI::App* command = parent.add_subcommand(name, description);
    command->set_version_flag("--version", std::string("distilld ") + kVersion);
    return command;
}

void add_run_options(CLI::App& run, RunCommand& command, SpecFlags& flags) {
    run.add_option("SPEC", command.spec, "job spec, a JSON file; - = stdin")->type_name("FILE")->required();
    run.add_flag("--resume", command.resume,
                 "continue from the newest checkpoint, regardless of the spec's resume and student.model");
    add_set_option(run, flags.sets);
    add_watch_options(run, command);
    flags.words.resize(std::size(kSpecFlags));
    for (std::size_t i = 0; i < std::size(kSpecFlags); ++i) {
        const auto& flag = kSpecFlags[i];
        const auto* field = api::spec_table().field(flag.pointer);
        auto* option = run.add_option(flag.name, flags.words[i], help_of(flag, *field))
                           ->allow_extra_args(false)
                           ->type_name(flag.type)
                           ->group("Fields of the spec");
        if (field->kind->shape() != api::FieldShape::list_of_texts) {
            option->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::Throw);
        }
    }
    run.add_flag("--overwrite", flags.overwrite,
                 "/overwrite: replace the checkpoints and the model of another run in the output folder")
        ->group("Fields of the spec");
}

void add_generate_options(CLI::App& generate, GenerateFlags& flags) {
    generate
        .add_option("SPEC", flags.run.spec,
                    "job spec, a JSON file (teacher, dataset and the student's tokenizer are used); - = stdin")
        ->type_name("FILE")
        ->required();
    generate.add_option("--store", flags.store, "folder of the store; overrides /teacher/store")->type_name("DIR");
    const auto names = [](const auto& choices) { return std::vector<std::string>(choices.begin(), choices.end()); };
    generate.add_option("--format", flags.format, "format of a new store; overrides /teacher/store_format")
        ->check(CLI::IsMember(names(kStoreFormatChoices)));
    generate.add_option("--values", flags.values, "precision of a new store; overrides /teacher/store_values")
        ->check(CLI::IsMember(names(kStoreValuesChoices)));
    generate
        .add_option("--teacher-endpoint", flags.endpoints,
                    "URL of a teacher; may be repeated; overrides /teacher/endpoints")
        ->allow_extra_args(false)
        ->type_name("URL");
    add_set_option(generate, flags.sets);
    add_watch_options(generate, flags.run);
}

Result<RunCommand> generate_command(const GenerateFlags& flags) {
    auto overrides = parse_sets(flags.sets);
    if (!overrides) {
        return overrides.error();
    }
    RunCommand run = flags.run;
    run.overrides = std::move(*overrides);
    const auto set = [&run](const char* pointer, const boost::json::value& value) {
        run.overrides.emplace_back(pointer, to_text(value));
    };
    set("/kind", to_string(JobKind::generate));
    set("/metrics", boost::json::object());  // the spec may be for training too
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

Result<RunCommand> run_command(RunCommand run, const SpecFlags& flags) {
    auto overrides = parse_sets(flags.sets);
    if (!overrides) {
        return overrides.error();
    }
    run.overrides = std::move(*overrides);
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
        run.overrides.emplace_back(flag.pointer, std::move(text));
        if (flag.replaces != nullptr) {
            run.overrides.emplace_back(flag.replaces, "null");
        }
    }
    if (flags.overwrite) {
        run.overrides.emplace_back("/overwrite", "true");
    }
    return run;
}

void add_keys_options(CLI::App& keys, KeysCommand& command) {
    using Action = KeysCommand::Action;
    keys.require_subcommand(1);
    const auto add = [&](const char* name, const char* description, Action action) {
        CLI::App* one = add_command(keys, name, description);
        one->callback([&command, action] { command.action = action; });
        if (action != Action::list) {
            one->add_option("NAME", command.name, "name of the key: letters, digits and . _ -")
                ->type_name("TEXT")
                ->required();
        }
        one->add_option("--data-dir", command.data_dir, "data folder of the service")->type_name("DIR")->required();
        return one;
    };
    add("add", "Make a key and print it once", Action::add)
        ->add_option_function<std::string>(
            "--role",
            [&command](const std::string& role) {
                command.role = enum_from_string<http::Role>(role).value_or(http::Role::read);
            },
            "read: look; submit: also submit jobs and change its own jobs; admin: everything")
        ->check(CLI::IsMember(names_of(kEnumNames<http::Role>)))
        ->required();
    add_form_option(*add("list", "List the keys, without their secrets", Action::list), command.json,
                    {"table", "json"});
    add("revoke", "Revoke a key at once", Action::revoke);
}

void add_spec_options(CLI::App& spec, SpecCommand& command) {
    spec.require_subcommand(1);
    using Action = SpecCommand::Action;
    const auto add = [&](const char* name, const char* description, Action action) {
        CLI::App* one = add_command(spec, name, description);
        one->callback([&command, action] { command.action = action; });
        return one;
    };
    CLI::App* init = add("init", "Write a commented spec to start from to stdout", Action::init);
    init->add_option("--model", command.model, "Hugging Face folder of the student")->type_name("DIR")->required();
    init->add_option("--data", command.data, "JSONL file to train on")->type_name("FILE")->required();
    init->add_option("--eval", command.eval, "JSONL file to evaluate on")->type_name("FILE");
    init->add_option("--teacher-endpoint", command.endpoints, "URL of a teacher; may be repeated")
        ->allow_extra_args(false)
        ->type_name("URL");
    init->add_option("--output", command.output, "folder for the trained student")
        ->type_name("DIR")
        ->capture_default_str();

    CLI::App* check =
        add("check", "Report what is wrong with a spec and the files that it names; exit code 0 or 2", Action::check);
    check->add_option("SPEC", command.subject, "job spec, a JSON file; - = stdin")->type_name("FILE")->required();
    add_set_option(*check, command.sets);
    add_form_option(*check, command.json, {"text", "json"});

    CLI::App* explain = add("explain", "Explain a field of the spec", Action::explain);
    explain->add_option(
        "FIELD", command.subject,
        "training.beta, /training/beta or beta; a section lists its fields, and without a name all are listed");
}

void add_store_options(CLI::App& store, StoreCommand& command) {
    using Action = StoreCommand::Action;
    store.require_subcommand(1);
    CLI::App* inspect = add_store_action(
        store, "inspect", "Show what a store holds, its bytes per token, and the error of its format", command);
    inspect->callback([&command] { command.action = Action::inspect; });
    CLI::Option* against =
        inspect->add_option("--against", command.against, "store with the logits of the same data: compare with it")
            ->type_name("DIR");
    inspect->add_option("--max-rows", command.max_rows, "rows to compare")
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40U))
        ->needs(against)
        ->capture_default_str();
    add_store_action(store, "verify", "Check all checksums; exit code 1 if something is damaged or missing", command)
        ->callback([&command] { command.action = Action::verify; });

    CLI::App* copy =
        add_store_action(store, "export", "Write a store in a smaller format, or as lines of JSON", command);
    CLI::Option* to = copy->add_option("--to", command.to, "folder of the new store")->type_name("DIR");
    CLI::Option* lines =
        copy->add_option("--jsonl", command.lines_file, "file of JSON lines, one per position; - = stdout")
            ->type_name("FILE")
            ->excludes(to);
    add_format(*copy, command);
    copy->add_option("--first-row", command.first_row, "first row of the dataset to write as lines")
        ->needs(lines)
        ->capture_default_str();
    copy->add_option("--rows", command.rows, "rows to write as lines; 0 = all")->needs(lines)->capture_default_str();
    copy->callback([&command, to, lines] {
        command.action = Action::export_;
        if (to->count() + lines->count() == 0) {
            throw CLI::RequiredError("--to or --jsonl");
        }
    });

    CLI::App* made = add_store_command(
        store, "import", "Make a dataset and a store from a file of llama.cpp (llama-perplexity --kl-divergence-base)",
        command);
    made->add_option("FILE", command.file, "the file")->type_name("FILE")->required();
    made->add_option("--to", command.to, "folder of the new store")->type_name("DIR")->required();
    made->add_option("--dataset", command.dataset, "JSONL file to write: the rows that the answers belong to")
        ->type_name("FILE")
        ->required();
    made->add_option("--bos", command.bos,
                     "id that llama.cpp put in place of each chunk's first token, if the model has one")
        ->check(CLI::Range(0, 1 << 24));
    add_format(*made, command);
    made->callback([&command] { command.action = Action::import_; });
}

}  // namespace distilld::cli
