#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "server/cli/command_line.hpp"

namespace distilld::cli {

/// Each runs its command to the end and returns the exit code.
int execute(const ServeCommand& command);
int execute(const RunCommand& command);
int execute(const TeacherCommand& command);
int execute(const JobsCommand& command);
int execute(const KeysCommand& command);
int execute(const StoreCommand& command);
int execute(const SpecCommand& command);
int execute(const TokenizeCommand& command);
int execute(const NodesCommand& command);
int execute(const HealthcheckCommand& command);

/// The service starts itself with this for an estimate (server/jobs/checks/estimate_process.hpp). Not for people.
inline constexpr const char* kEstimateArgument = "answer-estimate";

/// What launchers start on other machines (server/supervisor/relay.hpp); the arguments follow this word, in reverse
/// order as CLI11 takes them. Not for people.
inline constexpr const char* kAttemptArgument = "attempt";
int execute_attempt(std::vector<std::string> arguments);

/// Writes to stdout and flushes.
void print(const std::string& text);

/// The text of a spec file ("-": stdin), refused above api::kSpecSizeLimit; comments become blanks.
Result<std::string> read_spec_text(const std::string& file);

}  // namespace distilld::cli
