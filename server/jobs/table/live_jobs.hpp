#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "api/job_types.hpp"
#include "server/jobs/table/job_queue.hpp"

namespace distilld {

/// The present state of a job that has not ended, or that has not had its end stored.
struct LiveJob {
    api::Job job;  ///< without checkpoints and tasks, and without specs except a resolved one that is not on disk yet
    std::vector<api::JobCheckpoint> unsaved_checkpoints;
};

/// A version of what is shown of a job: two are equal only when nothing has changed in between.
struct JobVersion {
    std::uint64_t change = 0;          ///< number of the job's last change; for ended jobs, the last change of any of
                                       ///< them
    std::uint64_t queue_position = 0;  ///< 0 = it does not wait
    bool operator==(const JobVersion&) const = default;
};

/// Adds a checkpoint as the newest and replaces one in the same folder. True if it replaced none.
bool put_checkpoint(std::vector<api::JobCheckpoint>& checkpoints, api::JobCheckpoint checkpoint);

/// The stored job, updated with what the store does not have yet. `live` null: the store has everything.
[[nodiscard]] api::Job newest(const LiveJob* live, api::Job stored);

/// What the manager's thread lets others see, so that who asks waits neither for it nor for its disk. Any thread.
///
/// Look here first and into the store afterwards: what is not here any more is there. Thousands of jobs may wait, so
/// nothing here goes through all of them for one.
class LiveJobs {
  public:
    // --- the manager's thread writes ---
    void put(const std::string& id, LiveJob job);
    void erase(const std::string& id);
    /// Call after a stored job that is not here has changed.
    void ended_job_changed();
    /// The result of JobTable::take_queue_changes(), in order.
    void change_queue(const std::vector<QueueChange>& changes);
    /// Why the store cannot be written, and since when; nullopt: it can.
    void set_trouble(std::optional<api::StatusReason> trouble);

    // --- everyone reads ---
    /// Null: none.
    [[nodiscard]] std::shared_ptr<const LiveJob> find(const std::string& id) const;
    /// Works for any id: all jobs that are not here share one version.
    [[nodiscard]] JobVersion version_of(const std::string& id) const;
    /// 1 = next; for waiting jobs.
    [[nodiscard]] std::optional<std::uint64_t> queue_position(const std::string& id) const;
    /// Sets what follows from the place in the queue, which is not stored: the position, and the reason if no other is
    /// set.
    void complete(api::Job& job) const;
    [[nodiscard]] std::optional<api::StatusReason> trouble() const;

  private:
    struct Entry {
        std::shared_ptr<const LiveJob> job;
        std::uint64_t change = 0;
    };

    mutable std::mutex mutex_;  ///< guards what follows
    std::unordered_map<std::string, Entry> live_;
    std::uint64_t changes_ = 0;       ///< so far, of any job
    std::uint64_t ended_change_ = 0;  ///< the last change of a job that is not in live_
    JobQueue queue_;
    std::optional<api::StatusReason> trouble_;
};

}  // namespace distilld
