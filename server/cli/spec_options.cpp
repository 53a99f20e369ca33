#include "server/cli/spec_options.hpp"

#include <CLI/CLI.hpp>

namespace distilld::cli {

void add_set_option(CLI::App& command, std::vector<std::string>& sets) {
    command
        .add_option("--set", sets,
                    "set a field of the spec: training.max_steps=4 or /training/max_steps=4; may be repeated")
        ->allow_extra_args(false)
        ->type_name("FIELD=VALUE");
}

void add_spec_options(CLI::App& spec, SpecCommand& command, const std::string& version) {
    spec.require_subcommand(1);
    using Action = SpecCommand::Action;
    const auto add = [&](const char* name, const char* description, Action action) {
        CLI::App* one = spec.add_subcommand(name, description);
        one->set_version_flag("--version", version);
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
        add("check", "Say what is wrong with a spec and the files that it names; exit code 0 or 2", Action::check);
    check->add_option("SPEC", command.subject, "job spec, a JSON file; - = stdin")->type_name("FILE")->required();
    add_set_option(*check, command.sets);
    check
        ->add_option_function<std::string>(
            "-o,--output", [&command](const std::string& form) { command.json = form == "json"; }, "output format")
        ->type_name("FORM")
        ->check(CLI::IsMember({"text", "json"}));

    CLI::App* explain = add("explain", "Say what a field of the spec means", Action::explain);
    explain->add_option(
        "FIELD", command.subject,
        "training.beta, /training/beta or beta; a section lists its fields, and without a name all are listed");
}

}  // namespace distilld::cli
