#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "api/job_types.hpp"
#include "server/jobs/job_queue.hpp"

namespace distilld {

/// A job that has not ended, or whose end is not on disk, as it is now.
struct LiveJob {
    api::Job job;  ///< without checkpoints, and without specs but for a resolved one that is not on disk yet
    std::vector<api::JobCheckpoint> unsaved_checkpoints;
};

/// What is shown of a job: two are equal only when nothing of it has changed in between.
struct JobVersion {
    std::uint64_t change = 0;          ///< number of the job's last; of jobs that have ended, that of any of them
    std::uint64_t queue_position = 0;  ///< 0 = it does not wait
    bool operator==(const JobVersion&) const = default;
};

/// Adds a checkpoint, as the newest, in place of one in the same folder: true when there was none.
bool put_checkpoint(std::vector<api::JobCheckpoint>& checkpoints, api::JobCheckpoint checkpoint);

/// A job as the store has it, with what it does not know yet. `live` null: it knows all.
[[nodiscard]] api::Job newest(const LiveJob* live, api::Job stored);

/// What the manager's thread lets others see, so that who asks waits neither for it nor for its disk. Any thread.
///
/// Look here first and into the store afterwards: what is not here any more is there. Thousands of jobs may wait, so
/// nothing here goes through all of them for one.
class JobBoard {
  public:
    // --- the manager's thread writes ---
    void put(const std::string& id, LiveJob job);
    void erase(const std::string& id);
    /// Of a job that is not here something has changed in the store: after it has.
    void ended_job_changed();
    /// What JobTable::take_queue_changes() gave, in order.
    void change_queue(const std::vector<QueueChange>& changes);
    /// Why the store cannot be written, and since when; nothing: it can.
    void set_trouble(std::optional<api::StatusReason> trouble);

    // --- all read ---
    /// Null: none.
    [[nodiscard]] std::shared_ptr<const LiveJob> find(const std::string& id) const;
    /// Also of a job that there is not: of all that are not here there is one.
    [[nodiscard]] JobVersion version_of(const std::string& id) const;
    /// 1 = next; of jobs that wait.
    [[nodiscard]] std::optional<std::uint64_t> queue_position(const std::string& id) const;
    /// What follows from the place in the queue, which is stored nowhere: the position, and why a job waits of which
    /// nothing else is said.
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
    std::uint64_t ended_change_ = 0;  ///< the last of one that is not in live_
    JobQueue queue_;
    std::optional<api::StatusReason> trouble_;
};

}  // namespace distilld
