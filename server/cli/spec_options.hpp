#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace distilld::cli {

/// What `distilld spec` is to do.
struct SpecCommand {
    enum class Action { init, check, explain };
    Action action = Action::check;
    std::string subject;            ///< check: the spec's file, "-" = stdin; explain: a field, empty = all
    bool json = false;              ///< check
    std::vector<std::string> sets;  ///< check: as run's --set

    std::string model;  ///< init: the student's folder
    std::string data;   ///< init: what it is trained on
    std::string eval;   ///< init; empty = none
    std::vector<std::string> endpoints;
    std::string output = "student";
};

/// --set, of a command that is given a spec.
void add_set_option(CLI::App& command, std::vector<std::string>& sets);

/// The subcommands of `spec`, which tell `version` when they are asked.
void add_spec_options(CLI::App& spec, SpecCommand& command, const std::string& version);

}  // namespace distilld::cli
