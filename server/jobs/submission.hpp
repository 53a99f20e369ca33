#pragma once

#include "server/jobs/job_journal.hpp"
#include "server/jobs/job_manager.hpp"
#include "server/jobs/job_store.hpp"
#include "server/jobs/job_table.hpp"
#include "server/jobs/named_files_check.hpp"

namespace distilld {

/// What a request for a job comes to, before anything is written.
struct JudgedSubmission {
    SubmitOutcome outcome;  ///< created: without the job, which is to be stored
    StoredJob job;          ///< created: queued, with an id
    std::string output;     ///< created: identity of the output folder
};

/// What stands against running a spec: what the operator does not allow, asked first (of `own_paths`, pointers of what
/// the service has put into it, nothing is), or files that it names and that are not there, or that `rule` does not let
/// be opened. Blocks.
[[nodiscard]] api::SpecViolations objections(const JobSpec& spec, const Admission& admit, LookInside look_inside,
                                             const std::vector<std::string>& own_paths = {},
                                             const FileRule* rule = nullptr);

/// Judges a request by its spec, by the files that this names and by the jobs that there are. Reads the disk.
[[nodiscard]] JudgedSubmission judge_submission(const SubmitRequest& request, const JobManagerOptions& options,
                                                const JobTable& table, JobJournal& journal);

}  // namespace distilld
