#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/job_spec.hpp"
#include "api/job_types.hpp"

namespace distilld {

/// Code of the reason of a job with a record that cannot be read completely; its state may then be wrong.
inline constexpr const char* kDamagedReason = "damaged";

/// A job, including what clients do not see.
struct StoredJob {
    api::Job job;
    bool resume = false;          ///< the next run resumes from the newest checkpoint
    std::string idempotency_key;  ///< empty = none
    std::uint64_t number = 0;     ///< jobs are numbered as they are submitted, from 1; 0 = not stored yet
    // Of an attempt that outlives the service; see AttemptRecord.
    std::string attempt_token{};  ///< hash; empty: there is none
    std::string attempt_place{};
    std::uint64_t attempt_received = 0;
    /// The parsed resolved spec of a job that has not ended; null: it is not valid (any more). Not stored.
    std::shared_ptr<const JobSpec> spec{};
};

/// A job to store, and its first events.
struct NewJob {
    StoredJob stored;
    std::vector<api::JobEvent> events{};
};

struct JobQuery {
    std::string after;  ///< id; only older jobs. Empty = from the newest
    std::uint32_t limit = 20;
    std::optional<api::JobState> state;
    std::string name{};                             ///< empty = any
    std::string id_prefix{};                        ///< prefix of the id
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

/// What changes in a job with an event. Only the parts that are set are written, so that the cost of an event does not
/// grow with the job.
struct JobChange {
    const StoredJob* state = nullptr;  ///< state, reason, times, weights, resume, priority, limit; not the parts
                                       ///< below, nor specs and metadata
    const ProgressEvent* progress = nullptr;
    const api::Job* evaluation = nullptr;  ///< its eval_loss and what its teacher says
    const std::string* resolved_spec = nullptr;
    /// Replaces an older one with the same folder.
    std::vector<api::JobCheckpoint> checkpoints{};
};

/// Reads jobs and their events. One thread at a time, also while the store writes on its own. A failure of the disk or
/// the database is thrown as ErrorException (io) that names the file.
class JobReader {
  public:
    virtual ~JobReader() = default;
    [[nodiscard]] virtual std::optional<StoredJob> get(std::string_view id) = 0;
    [[nodiscard]] virtual JobPage list(const JobQuery& query) = 0;
    [[nodiscard]] virtual EventPage events(std::string_view id, std::uint64_t after, std::uint32_t limit) = 0;
    /// Newest first.
    [[nodiscard]] virtual EventPage events_before(std::string_view id, std::uint64_t before, std::uint32_t limit) = 0;
    /// All checkpoints that the job has written, oldest first; its document has only the newest.
    [[nodiscard]] virtual std::vector<api::JobCheckpoint> checkpoints(std::string_view id) = 0;
    /// Hands over the stored events of type metrics and evaluation, ascending.
    virtual void measurements(std::string_view id, const std::function<void(const api::JobEvent&)>& take) = 0;
};

/// Jobs and their events, durable. One thread at a time. Each call is one transaction, on disk on return.
class JobStore : public JobReader {
  public:
    /// Stores all or none, and returns their numbers. Their first events are numbered from 1.
    virtual std::vector<std::uint64_t> create_all(std::span<const NewJob> jobs) = 0;
    std::uint64_t create(const StoredJob& job, std::vector<api::JobEvent> events = {}) {
        const NewJob one{job, std::move(events)};
        return create_all({&one, 1}).front();
    }
    /// The job that was submitted with this key at or after `not_before` (RFC 3339).
    [[nodiscard]] virtual std::optional<StoredJob> find_by_key(std::string_view key, std::string_view not_before) = 0;
    /// Jobs that are not terminal, oldest first, without specs.
    [[nodiscard]] virtual std::vector<StoredJob> unfinished() = 0;
    /// Hands over the jobs that have ended and had a worker, with only their id, owner's id, output and resolved spec.
    virtual void ended(const std::function<void(const api::Job&)>& take) = 0;
    /// Number of jobs in each state.
    [[nodiscard]] virtual std::vector<std::pair<api::JobState, std::uint64_t>> counts() = 0;
    /// Stores the events under the job's next sequence numbers, together with the change of the job.
    /// Returns the last sequence number.
    virtual std::uint64_t append_events(std::string_view id, std::span<const api::JobEvent> events,
                                        const JobChange& change) = 0;
    std::uint64_t append_event(std::string_view id, const api::JobEvent& event, const JobChange& change = {}) {
        return append_events(id, {&event, 1}, change);
    }
    /// Drops a job's metrics events with sequence at or below `sequence`.
    virtual void drop_metrics(std::string_view id, std::uint64_t sequence) = 0;
    /// Drops all but the newest `kept` events of type message of a job; one event says how many were dropped.
    virtual void drop_messages(std::string_view id, std::uint32_t kept) = 0;
    /// Replaces the job's metadata. False: no such job.
    virtual bool set_metadata(std::string_view id, const std::map<std::string, std::string>& metadata) = 0;
    /// Removes jobs and everything stored about them: all, or none if the disk refuses. False: there was none of them.
    virtual bool remove_all(std::span<const std::string> ids) = 0;
    bool remove(const std::string& id) { return remove_all({&id, 1}); }
    /// Writes without changing anything; throws when nothing can be written.
    virtual void try_write() = 0;
    /// Another reader for another thread; it sees what a call has written once that has returned.
    [[nodiscard]] virtual std::unique_ptr<JobReader> open_reader() = 0;
};

}  // namespace distilld
