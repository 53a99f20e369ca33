#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "api/spec_overrides.hpp"
#include "server/cli/jobs_options.hpp"
#include "server/cli/spec_options.hpp"
#include "server/cli/store_options.hpp"
#include "server/supervisor/restart_policy.hpp"
#include "server/support/exit_codes.hpp"
#include "server/teacher/teacher_options.hpp"

namespace distilld::cli {

struct ServeCommand {
    std::string listen = "127.0.0.1:8500";
    std::vector<std::string> hosts;  ///< names that requests may have for the service, beside those of `listen`
    std::filesystem::path data_dir;
    std::filesystem::path key_root;  ///< empty = as the environment says, else none
    std::uint32_t slots = 1;
    std::uint32_t max_worker_restarts = RestartLimits{}.max_restarts;
    std::uint32_t max_oom_restarts = RestartLimits{}.max_oom_restarts;
    std::uint32_t max_queued = 10000;  ///< jobs that wait; more are refused
    bool log_json = false;
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
    std::string server = "http://127.0.0.1:8500";
};

/// A line of text in, a JSON array of ids out.
struct TokenizeCommand {
    std::filesystem::path folder;
    bool decode = false;  ///< the other way
};

using Command = std::variant<ServeCommand, RunCommand, TeacherCommand, JobsCommand, StoreCommand, SpecCommand,
                             TokenizeCommand, HealthcheckCommand>;

/// A command, or what to print in its place.
struct ParsedLine {
    std::optional<Command> command;
    int exit_code = kDone;
    std::string out;  ///< --help, --version, a completion script, the manual page
    std::string err;  ///< one clear error
};

/// `arguments` without the program's name.
[[nodiscard]] ParsedLine parse_command_line(std::vector<std::string> arguments);

}  // namespace distilld::cli
