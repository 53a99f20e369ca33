#include "server/cli/keys_options.hpp"

#include <CLI/CLI.hpp>

#include "base/enum_names.hpp"

namespace distilld::cli {

void add_keys_options(CLI::App& keys, KeysCommand& command, const std::string& version) {
    using Action = KeysCommand::Action;
    keys.require_subcommand(1);
    const auto add = [&](const char* name, const char* description, Action action) {
        CLI::App* one = keys.add_subcommand(name, description);
        one->set_version_flag("--version", version);
        one->callback([&command, action] { command.action = action; });
        if (action != Action::list) {
            one->add_option("NAME", command.name, "name of the key: letters, digits and . _ -")
                ->type_name("TEXT")
                ->required();
        }
        one->add_option("--data-dir", command.data_dir, "data folder of the service")->type_name("DIR")->required();
        return one;
    };
    add("add", "Make a key and print it, this one time", Action::add)
        ->add_option_function<std::string>(
            "--role",
            [&command](const std::string& role) {
                command.role = value_of(api::kRoleNames, role).value_or(api::Role::read);
            },
            "read: look; submit: also submit jobs and change one's own jobs; admin: everything")
        ->check(CLI::IsMember(names_of(api::kRoleNames)))
        ->required();
    add("list", "List the keys, without their secrets", Action::list)
        ->add_option_function<std::string>(
            "-o,--output", [&command](const std::string& form) { command.json = form == "json"; }, "output format")
        ->type_name("FORM")
        ->check(CLI::IsMember({"table", "json"}));
    add("revoke", "Revoke a key at once", Action::revoke);
}

}  // namespace distilld::cli
