#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/job_types.hpp"
#include "base/error.hpp"

namespace distilld {

/// Code of the reason of a job whose record cannot be read as a whole; its state may be wrong then.
inline constexpr const char* kDamagedReason = "damaged";

/// A job with what clients do not see.
struct StoredJob {
    api::Job job;
    bool resume = false;          ///< the next run goes on from the newest checkpoint
    std::string idempotency_key;  ///< empty = none
    std::uint64_t number = 0;     ///< jobs are numbered as they are submitted, from 1; 0 = not stored yet
};

struct JobQuery {
    std::string after;  ///< id; jobs older than it. Empty = from the newest
    std::uint32_t limit = 20;
    std::optional<api::JobState> state;
    std::string name{};                             ///< empty = any
    std::string id_prefix{};                        ///< what the id begins with
    std::map<std::string, std::string> metadata{};  ///< pairs that a job must have
    bool with_specs = false;
};

struct JobPage {
    std::vector<StoredJob> jobs;  ///< newest first; without specs unless the query asks for them
    bool has_more = false;
};

struct EventPage {
    std::vector<api::JobEvent> events;  ///< ascending, or of events_before() descending
    bool has_more = false;
};

/// What changes in a job with an event. Each part is written only when it is there, so that the cost of an event does
/// not grow with the job.
struct JobChange {
    const StoredJob* state = nullptr;  ///< state, reason, times, weights, resume, priority, limit; not the parts
                                       ///< below, nor specs and metadata
    const ProgressEvent* progress = nullptr;
    const api::Job* evaluation = nullptr;  ///< its eval_loss, eval_kl, eval_top1_agreement
    const std::string* resolved_spec = nullptr;
    /// One whose folder is known takes the place of the older one.
    std::vector<api::JobCheckpoint> checkpoints{};
};

/// Reads jobs and their events. One thread at a time; beside the store's while it writes. What the disk or the database
/// refuses is thrown as ErrorException (io) that names the file.
class JobReader {
  public:
    virtual ~JobReader() = default;
    [[nodiscard]] virtual std::optional<StoredJob> get(std::string_view id) = 0;
    [[nodiscard]] virtual JobPage list(const JobQuery& query) = 0;
    [[nodiscard]] virtual EventPage events(std::string_view id, std::uint64_t after, std::uint32_t limit) = 0;
    /// Newest first.
    [[nodiscard]] virtual EventPage events_before(std::string_view id, std::uint64_t before, std::uint32_t limit) = 0;
    /// All that the job has written, oldest first; its document has the newest alone.
    [[nodiscard]] virtual std::vector<api::JobCheckpoint> checkpoints(std::string_view id) = 0;
    /// Hands over the job's events of type metrics and evaluation that there are, ascending.
    virtual void measurements(std::string_view id, const std::function<void(const api::JobEvent&)>& take) = 0;
};

/// Jobs and their events, durable. One thread at a time. Each call is one transaction, on disk when it returns.
class JobStore : public JobReader {
  public:
    /// The job's number. Its first events are stored with it, numbered from 1.
    virtual std::uint64_t create(const StoredJob& job, std::span<const api::JobEvent> events) = 0;
    std::uint64_t create(const StoredJob& job) { return create(job, {}); }
    /// Job that was submitted with this key at or after `not_before` (RFC 3339).
    [[nodiscard]] virtual std::optional<StoredJob> find_by_key(std::string_view key, std::string_view not_before) = 0;
    /// Jobs that are not terminal, oldest first, without specs.
    [[nodiscard]] virtual std::vector<StoredJob> unfinished() = 0;
    /// Hands over the jobs that have ended and had a worker: their id, owner's id, output and resolved
    /// spec alone.
    virtual void ended(const std::function<void(const api::Job&)>& take) = 0;
    /// Number of jobs in each state.
    [[nodiscard]] virtual std::vector<std::pair<api::JobState, std::uint64_t>> counts() = 0;
    /// Stores the events (one at least) under the job's next sequence numbers, the last of which is returned, and the
    /// change of the job with them.
    virtual std::uint64_t append_events(std::string_view id, std::span<const api::JobEvent> events,
                                        const JobChange& change) = 0;
    std::uint64_t append_event(std::string_view id, const api::JobEvent& event, const JobChange& change = {}) {
        return append_events(id, {&event, 1}, change);
    }
    /// Drops the metrics events of a job with sequence at or below `sequence`.
    virtual void drop_metrics(std::string_view id, std::uint64_t sequence) = 0;
    /// Drops all but the newest `kept` events of type message of a job; one that says how many stands in their place.
    virtual void drop_messages(std::string_view id, std::uint32_t kept) = 0;
    /// In place of the job's metadata. False: there is no such job.
    virtual bool set_metadata(std::string_view id, const std::map<std::string, std::string>& metadata) = 0;
    /// Removes a job with all that is known of it. False: there is none.
    virtual bool remove(std::string_view id) = 0;
    /// Writes, and changes nothing: throws when nothing can be written.
    virtual void try_write() = 0;
    /// Another reader of the same, for another thread; it sees what a call has written once that returned.
    [[nodiscard]] virtual std::unique_ptr<JobReader> open_reader() = 0;
};

/// SQLite (WAL, synchronous FULL) in `file`, which is made or brought to the newest schema (job_schema.hpp). Refuses a
/// file that is no database of ours, or one that a newer version wrote.
Result<std::unique_ptr<JobStore>> open_sqlite_job_store(const std::filesystem::path& file);

}  // namespace distilld
