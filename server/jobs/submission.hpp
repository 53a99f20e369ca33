#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "server/jobs/job_journal.hpp"
#include "server/jobs/job_manager.hpp"
#include "server/jobs/job_store.hpp"
#include "server/jobs/job_table.hpp"
#include "server/jobs/named_files_check.hpp"

namespace distilld {

/// What a request for a job comes to, before anything is written.
struct JudgedSubmission {
    JobOutcome outcome;  ///< created: without the job, which is to be stored
    StoredJob job;       ///< created: queued, with an id
    PathClaims claims;   ///< created
};

/// A spec that somebody wants to have run, and all that is to be found out about it on the disk.
struct PreparedSpec {
    std::optional<JobSpec> spec;  ///< its paths are absolute; nothing: `violations` say why
    std::vector<PathClaim> claims;
    /// What the operator does not allow, asked first (of `own_paths`, pointers of what the service has put into the
    /// spec, nothing is), or files that it names and that are not there, or must not be opened.
    api::SpecViolations violations;
};

/// `admit` is one of the options' two. Blocks, for as long as searching for what patterns match may take: not for the
/// manager's thread. Any other thread.
[[nodiscard]] PreparedSpec prepare_spec(const std::string& spec_json, const JobManagerOptions& options,
                                        const Admission& admit, LookInside look_inside,
                                        const std::vector<std::string>& own_paths = {});
/// The spec of a request.
[[nodiscard]] PreparedSpec prepare_submission(const SubmitRequest& request, const JobManagerOptions& options);

/// Judges a request by what was found out about its spec and by the jobs that there are.
[[nodiscard]] JudgedSubmission judge_submission(const SubmitRequest& request, PreparedSpec prepared,
                                                const JobManagerOptions& options, const JobTable& table,
                                                JobJournal& journal);

}  // namespace distilld
