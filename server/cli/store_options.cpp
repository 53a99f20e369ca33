#include "server/cli/store_options.hpp"

#include <CLI/CLI.hpp>
#include <map>

#include "base/enum_names.hpp"

namespace distilld::cli {
namespace {

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

CLI::App* add_command(CLI::App& store, const char* name, const char* description, StoreCommand& command,
                      const std::string& version) {
    CLI::App* one = store.add_subcommand(name, description);
    one->set_version_flag("--version", version);
    one->add_option_function<std::string>(
           "-o,--output", [&command](const std::string& form) { command.json = form == "json"; }, "output format")
        ->type_name("FORM")
        ->check(CLI::IsMember({"text", "json"}));
    return one;
}

/// One that is about a store that is there.
CLI::App* add_action(CLI::App& store, const char* name, const char* description, StoreCommand& command,
                     const std::string& version) {
    CLI::App* one = add_command(store, name, description, command, version);
    one->add_option("DIR", command.folder, "folder of the store")->type_name("DIR")->required();
    return one;
}

/// What a new store is to hold.
void add_format(CLI::App& app, StoreCommand& command) {
    add_choice(app, "--format", kStoreFormatNames, command.wanted.format, "format of the new store");
    add_choice(app, "--values", kStoreValuesNames, command.wanted.values,
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

}  // namespace

void add_store_options(CLI::App& store, StoreCommand& command, const std::string& version) {
    using Action = StoreCommand::Action;
    store.require_subcommand(1);
    CLI::App* inspect = add_action(
        store, "inspect", "Show what a store holds, its bytes per token, and what storing has cost", command, version);
    inspect->callback([&command] { command.action = Action::inspect; });
    CLI::Option* against =
        inspect->add_option("--against", command.against, "store with the logits of the same data: compare with it")
            ->type_name("DIR");
    inspect->add_option("--max-rows", command.max_rows, "rows to compare")
        ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1} << 40U))
        ->needs(against)
        ->capture_default_str();
    add_action(store, "verify", "Check all checksums; exit code 1 if something is damaged or missing", command, version)
        ->callback([&command] { command.action = Action::verify; });

    CLI::App* copy =
        add_action(store, "export", "Write a store in a smaller format, or as lines of JSON", command, version);
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

    CLI::App* made = add_command(
        store, "import", "Make a dataset and a store from a file of llama.cpp (llama-perplexity --kl-divergence-base)",
        command, version);
    made->add_option("FILE", command.file, "the file")->type_name("FILE")->required();
    made->add_option("--to", command.to, "folder of the new store")->type_name("DIR")->required();
    made->add_option("--dataset", command.dataset, "JSONL file to write: what the answers are about")
        ->type_name("FILE")
        ->required();
    made->add_option("--bos", command.bos,
                     "id that llama.cpp put in place of each chunk's first token, if the model has one")
        ->check(CLI::Range(0, 1 << 24));
    add_format(*made, command);
    made->callback([&command] { command.action = Action::import_; });
}

}  // namespace distilld::cli
