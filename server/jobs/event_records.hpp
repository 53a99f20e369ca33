#pragma once

#include "api/job_types.hpp"
#include "pipeline/core/worker_events.hpp"

/// What a worker says, as lines of a job's history. Sequence and time are left to the store and the manager.
namespace distilld {

api::JobEvent record_of(const StartedEvent& event);
/// Without the times of the stages: thousands of these are kept.
api::JobEvent record_of(const ProgressEvent& event);
api::JobEvent record_of(const EvaluationEvent& event);
api::JobEvent record_of(const CheckpointEvent& event);
api::JobEvent record_of(const LogEvent& event);

/// The job came to its present state.
api::JobEvent state_record(const api::Job& job);

}  // namespace distilld
