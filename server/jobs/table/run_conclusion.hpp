#pragma once

#include <optional>

#include "api/job_types.hpp"
#include "server/jobs/table/job_intent.hpp"

namespace distilld {

/// What the end of a worker means for its job.
struct Conclusion {
    api::JobState state = api::JobState::failed;  ///< queued, paused: it resumes later
    std::optional<api::StatusReason> reason;
};

/// The intent for a job that had a worker.
struct WantedOfRun {
    JobIntent intent{};
    bool skips_checkpoint = false;  ///< cancel: without a last checkpoint
    bool resumed = false;           ///< there were earlier runs
};

/// nullopt: the worker died or could not be started, and the job is not over.
[[nodiscard]] std::optional<Conclusion> conclude(const WantedOfRun& wanted, const WorkerOutcome& outcome);

/// Describes the unwanted end of a worker, for people.
[[nodiscard]] std::string what_happened(const WorkerOutcome& outcome);

/// The job rests because the user wants it to; `message` says how that happened.
[[nodiscard]] api::StatusReason paused_reason(std::string message);

}  // namespace distilld
