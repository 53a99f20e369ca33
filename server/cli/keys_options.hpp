#pragma once

#include <filesystem>
#include <string>

#include "api/caller.hpp"

namespace CLI {
class App;
}

namespace distilld::cli {

/// What `distilld keys` is to do.
struct KeysCommand {
    enum class Action { add, list, revoke };
    Action action = Action::list;
    std::filesystem::path data_dir;  ///< of the service
    std::string name;                ///< add, revoke
    api::Role role = api::Role::read;
    bool json = false;
};

/// The subcommands of `keys`, which tell `version` when they are asked.
void add_keys_options(CLI::App& keys, KeysCommand& command, const std::string& version);

}  // namespace distilld::cli
