#pragma once

#include <optional>
#include <string>

#include "server/jobs/event_waiters.hpp"
#include "server/jobs/job_journal.hpp"
#include "server/jobs/job_metrics.hpp"
#include "server/jobs/job_table.hpp"
#include "server/jobs/running_jobs.hpp"
#include "server/jobs/store_keeper.hpp"

namespace distilld {

/// Carries out the actions of a JobTable on the journal and on the workers. The manager's thread; all that it is given
/// must outlive it.
class ActionPerformer {
  public:
    struct Parts {
        JobTable& table;
        JobJournal& journal;
        JobMetrics& metrics;
        RunningJobs& running;
        StoreKeeper& keeper;
        EventWaiters& waiters;
    };
    explicit ActionPerformer(Parts parts) : parts_(parts) {}

    /// A worker that cannot be started has ended: the table is told so.
    void perform(const JobAction& action);

  private:
    void on(const StartWorkerAction& action);
    void on(const StopWorkerAction& action);
    void on(const CheckpointWorkerAction& action);
    void on(const KillWorkerAction& action);
    void on(const StoreStateAction& action);
    void on(const StoreCancelRequestAction& action);
    void on(const StoreNoteAction& action);
    void on(const WakeReadersAction& action);

    /// A failure: links lead elsewhere since the job was taken, to places that it may not have.
    std::optional<WorkerOutcome> kept_from_its_places(const std::string& id);

    Parts parts_;
};

}  // namespace distilld
