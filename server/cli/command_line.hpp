#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/spec_overrides.hpp"
#include "server/cli/connection_options.hpp"
#include "server/cli/jobs_options.hpp"
#include "server/cli/keys_options.hpp"
#include "server/cli/spec_options.hpp"
#include "server/cli/store_options.hpp"
#include "server/settings/settings_load.hpp"
#include "server/support/exit_codes.hpp"
#include "server/teacher/teacher_options.hpp"

namespace distilld::cli {

struct ServeCommand {
    EffectiveSettings effective;  ///< good, and nothing is missing
};

struct RunCommand {
    std::string spec;  ///< file, "-" = stdin
    bool resume = false;
    std::vector<api::Override> overrides;  ///< of --set and of the other flags, in the order they apply
    std::string trace_file;
    std::string report_file;
    std::string metrics_listen;  ///< ADDRESS:PORT to serve metrics at during the run; empty = nowhere
};

struct TeacherCommand {
    TeacherOptions options;
};

struct HealthcheckCommand {
    ConnectionOptions connection;
};

/// A line of text in, a JSON array of ids out.
struct TokenizeCommand {
    std::filesystem::path folder;
    bool decode = false;  ///< the other way
};

using Command = std::variant<ServeCommand, RunCommand, TeacherCommand, JobsCommand, KeysCommand, StoreCommand,
                             SpecCommand, TokenizeCommand, HealthcheckCommand>;

/// A command, or what to print in its place.
struct ParsedLine {
    std::optional<Command> command;
    int exit_code = kDone;
    std::string out;  ///< --help, --version, --print-config, a completion script, the manual page
    std::string err;  ///< one clear error
};

/// `arguments` without the program's name. Of `serve` the file of settings and the environment are read too.
[[nodiscard]] ParsedLine parse_command_line(std::vector<std::string> arguments);

}  // namespace distilld::cli
