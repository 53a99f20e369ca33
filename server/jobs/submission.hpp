#pragma once

#include "server/jobs/job_journal.hpp"
#include "server/jobs/job_manager.hpp"
#include "server/jobs/job_store.hpp"
#include "server/jobs/job_table.hpp"

namespace distilld {

/// What a request for a job comes to, before anything is written.
struct JudgedSubmission {
    SubmitOutcome outcome;  ///< created: without the job, which is to be stored
    StoredJob job;          ///< created: queued, with an id
    std::string output;     ///< created: identity of the output folder
};

/// Judges a request by its spec, by the files that this names and by the jobs that there are. Reads the disk.
[[nodiscard]] JudgedSubmission judge_submission(const SubmitRequest& request, const JobManagerOptions& options,
                                                const JobTable& table, JobJournal& journal);

}  // namespace distilld
