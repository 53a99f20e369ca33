#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>

#include "server/jobs/table/job_verdict.hpp"

namespace distilld {

class JobTable;

/// A one-word request about a job. Each row is the route POST /v1/jobs/{id}/NAME and the command `distilld jobs NAME
/// JOB`, and states what it does and when it is refused. Asking again is not an error.
struct JobVerb {
    const char* name;
    const char* help;  ///< of the command
    /// Asks the table. not_found: the table does not have the job, which may have ended.
    JobVerdict (*ask)(JobTable& table, const std::string& id, bool option, std::chrono::steady_clock::time_point now);
    JobVerdict ended = JobVerdict::terminal;  ///< the verdict if the job has ended
    bool revives = false;                     ///< a job that has ended is resumed instead
    bool needs_checkpoints = false;           ///< refused for kinds of jobs without checkpoints
    /// A query parameter that is true unless given as false. Null: there is none.
    const char* option = nullptr;
    const char* option_off = nullptr;   ///< the command's flag that makes it false
    const char* option_help = nullptr;  ///< of that flag
};

/// All verbs, in the order of the help.
[[nodiscard]] std::span<const JobVerb> job_verbs();
/// The verb of this name, which must exist.
[[nodiscard]] const JobVerb& job_verb(std::string_view name);

}  // namespace distilld
