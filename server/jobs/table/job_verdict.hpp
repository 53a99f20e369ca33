#pragma once

namespace distilld {

/// The outcome of a client's request about a job.
enum class JobVerdict {
    // --- done, or will be done ---
    created,   ///< submission: the job is queued
    existing,  ///< submission: the same one was made before, with the same idempotency key
    valid,     ///< submission: a valid dry run
    accepted,  ///< the request about a job

    // --- refusals: each has a row in job_refusals.cpp ---
    not_found,
    terminal,            ///< the job has ended
    not_terminal,        ///< the job has not ended
    tasks_not_terminal,  ///< the job has ended, but one of its tasks has not
    cancelling,          ///< the job is being cancelled
    not_running,         ///< it has no worker, or its worker is about to stop
    no_checkpoints,      ///< jobs of its kind keep their progress without checkpoints
    no_remote_teacher,   ///< it does not ask an endpoint
    invalid_change,      ///< of a job
    invalid_spec,
    not_yours,          ///< a job of another owner has written where this one is to write
    not_runnable,       ///< what its spec names is gone or no longer allowed
    output_in_use,      ///< another job that has not ended uses a place that this one writes to
    key_reused,         ///< the idempotency key was used with another body
    queue_full,         ///< the queue is full
    nodes_unavailable,  ///< the cluster does not say which nodes are idle
    stopping,           ///< the service is stopping
};

}  // namespace distilld
