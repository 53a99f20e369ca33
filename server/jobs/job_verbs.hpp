#pragma once

#include <optional>
#include <string>

#include "server/jobs/job_journal.hpp"
#include "server/jobs/job_manager.hpp"
#include "server/jobs/job_table.hpp"
#include "server/jobs/running_jobs.hpp"
#include "server/jobs/store_keeper.hpp"
#include "server/jobs/submission.hpp"

namespace distilld {

/// What users ask of jobs, judged and begun; the job of an outcome is left out. The table's actions are the caller's to
/// carry out. The manager's thread; all that it is given must outlive it.
class JobVerbs {
  public:
    struct Parts {
        JobTable& table;
        JobJournal& journal;
        RunningJobs& running;
        StoreKeeper& keeper;
        const JobManagerOptions& options;
    };
    explicit JobVerbs(Parts parts) : parts_(parts) {}

    // See JobManager. ErrorException when the store cannot be read, or not be written where the answer is that it was.
    JobOutcome cancel(const std::string& id, LastCheckpoint last);
    JobOutcome pause(const std::string& id);
    /// Of a job that has ended and is to go on: its spec, which resume() wants to have prepared. Nothing: it needs
    /// none.
    std::optional<std::string> spec_to_prepare(const std::string& id);
    JobOutcome resume(const std::string& id, PreparedSpec prepared);
    JobOutcome checkpoint(const std::string& id);
    JobOutcome change(const std::string& id, const JobPatch& patch);

  private:
    JobOutcome outcome_of(JobVerdict verdict, const std::string& id);
    JobOutcome revive(const std::string& id, PreparedSpec prepared);
    void apply(const std::string& id, const JobPatch& patch);

    Parts parts_;
};

}  // namespace distilld
