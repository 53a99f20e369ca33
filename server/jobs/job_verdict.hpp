#pragma once

namespace distilld {

/// What a client's request about a job comes to.
enum class JobVerdict {
    // --- it is done, or will be ---
    created,   ///< submission: the job is queued
    existing,  ///< submission: the same one was made before, with the same idempotency key
    valid,     ///< submission: a dry run, nothing is wrong
    accepted,  ///< what was asked of a job

    // --- refusals: each has a row in job_refusals.cpp ---
    not_found,
    terminal,           ///< it has ended
    not_terminal,       ///< it has not
    cancelling,         ///< its end was asked for
    not_running,        ///< it has no worker, or one that is to stop
    no_checkpoints,     ///< jobs of its kind keep what they have done without
    no_remote_teacher,  ///< it asks no endpoint
    invalid_change,     ///< of a job
    invalid_spec,
    not_yours,      ///< a job of another owner has written where this one is to write
    not_runnable,   ///< what its spec names is not there any more, or not allowed
    output_in_use,  ///< a job that has not ended uses a place that this one is to write to
    key_reused,     ///< the idempotency key was used with another body
    queue_full,     ///< as many jobs wait as may
    stopping,       ///< the service is
};

}  // namespace distilld
