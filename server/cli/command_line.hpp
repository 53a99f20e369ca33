#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/cli/command_options.hpp"
#include "server/cli/jobs/connection_options.hpp"
#include "server/cli/jobs/jobs_options.hpp"
#include "server/settings/settings_load.hpp"
#include "server/support/exit_codes.hpp"
#include "server/teacher/teacher_options.hpp"

namespace distilld::cli {

struct ServeCommand {
    EffectiveSettings effective;  ///< valid and complete
};

struct TeacherCommand {
    TeacherOptions options;
};

struct HealthcheckCommand {
    ConnectionOptions connection;
};

struct NodesCommand {
    ConnectionOptions connection;
    bool json = false;
};

/// Turns each line of text into a JSON array of ids.
struct TokenizeCommand {
    std::filesystem::path folder;
    bool decode = false;  ///< the other direction
};

using Command = std::variant<ServeCommand, RunCommand, TeacherCommand, JobsCommand, KeysCommand, StoreCommand,
                             SpecCommand, TokenizeCommand, NodesCommand, HealthcheckCommand>;

/// A command, or what to print instead.
struct ParsedLine {
    std::optional<Command> command;
    int exit_code = kDone;
    std::string out;  ///< --help, --version, --print-config, a completion script, the manual page
    std::string err;  ///< one clear error
};

/// `arguments` excludes the program's name. For `serve`, also reads the settings file and the environment.
[[nodiscard]] ParsedLine parse_command_line(std::vector<std::string> arguments);

}  // namespace distilld::cli
