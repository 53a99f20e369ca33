#pragma once

#include <filesystem>
#include <string>

#include "base/error.hpp"
#include "server/cli/command_line.hpp"

namespace distilld::cli {

/// Each runs its command to the end and returns the exit code.
int serve(const ServeCommand& command);
int run(const RunCommand& command);
int teacher(const TeacherCommand& command);
int jobs(const JobsCommand& command);
int keys(const KeysCommand& command);
int store(const StoreCommand& command);
int spec(const SpecCommand& command);
int tokenize(const TokenizeCommand& command);
int healthcheck(const HealthcheckCommand& command);

/// How the service calls itself for an estimate (server/jobs/estimate_process.hpp). No command for people.
inline constexpr const char* kEstimateArgument = "answer-estimate";

/// The text of a spec file ("-": stdin), refused above api::kSpecSizeLimit, with blanks in place of its comments.
Result<std::string> read_spec_text(const std::string& file);

}  // namespace distilld::cli
