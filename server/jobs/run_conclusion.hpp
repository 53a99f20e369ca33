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

/// What was wanted of a job that had a worker.
struct WantedOfRun {
    JobIntent intent{};
    bool skips_checkpoint = false;  ///< cancel: without the last
    bool resumed = false;           ///< there were runs before
};

/// Nothing: the worker died, or could not be started, and the job is not over.
[[nodiscard]] std::optional<Conclusion> conclude(const WantedOfRun& wanted, const WorkerOutcome& outcome);

/// What is known of a worker's unwanted end, for people.
[[nodiscard]] std::string what_happened(const WorkerOutcome& outcome);

/// The job rests because the user wants it to; `message` says how that came.
[[nodiscard]] api::StatusReason paused_reason(std::string message);

}  // namespace distilld
