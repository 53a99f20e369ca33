#pragma once

#include <optional>

#include "api/job_types.hpp"
#include "server/jobs/job_table.hpp"

namespace distilld {

/// What the end of a worker means for its job.
struct Conclusion {
    api::JobState state = api::JobState::failed;  ///< queued, paused: it goes on later
    std::optional<api::StatusReason> reason;
};

/// By what was wanted of the job, which had a worker. `skips_checkpoint`: it was to be cancelled without its last
/// checkpoint. Nothing: the worker died, or could not be started, and the job is not over.
[[nodiscard]] std::optional<Conclusion> conclude(JobIntent intent, const WorkerOutcome& outcome, bool skips_checkpoint);

/// What is known of a worker's unwanted end, for people.
[[nodiscard]] std::string what_happened(const WorkerOutcome& outcome);

/// The job rests because the user wants it to; `message` says how that came.
[[nodiscard]] api::StatusReason paused_reason(std::string message);

}  // namespace distilld
