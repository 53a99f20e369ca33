#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/job_attempt.hpp"
#include "server/jobs/store/job_store.hpp"
#include "server/jobs/table/live_jobs.hpp"

namespace distilld {

/// The parsed form of a stored spec; null: it is not valid (any more).
[[nodiscard]] std::shared_ptr<const JobSpec> stored_spec(const std::string& spec_json);

/// The current time, in the format of jobs and events.
[[nodiscard]] std::string now_text();

/// The store, and what it does not have yet. The newest state of each job that has not ended is in memory and on the
/// board, and is written with the job's next event. A full disk must end neither a job nor the service: events that
/// cannot be written wait here, up to a bound, and are written in order when there is space. One thread.
class JobJournal {
  public:
    static constexpr std::uint32_t kMessagesKept = 10'000;

    /// `metrics_kept`, `messages_kept`: about how many metrics events and messages are kept per job. `wake` is called
    /// when a job has an event, `on_trouble` when the store begins to refuse: call retry() from then on.
    JobJournal(std::unique_ptr<JobStore> store, std::uint32_t metrics_kept,
               std::function<void(const std::string& id)> wake, std::uint32_t messages_kept = kMessagesKept,
               std::function<void()> on_trouble = {});

    /// Most events of one job that wait for space. Then old ones are dropped, metrics first; the history says so.
    static constexpr std::size_t kMaxUnsavedEvents = 1000;

    [[nodiscard]] const LiveJobs& live_jobs() const noexcept { return live_jobs_; }
    [[nodiscard]] LiveJobs& live_jobs() noexcept { return live_jobs_; }
    /// See JobStore.
    [[nodiscard]] std::unique_ptr<JobReader> open_reader() { return store_->open_reader(); }

    /// Reads the jobs that have not ended, with their parsed specs, oldest first. Call once, before anything else.
    std::vector<StoredJob> restore();

    /// See JobStore. Call once, before anything else.
    void ended(const std::function<void(const api::Job&)>& take) { store_->ended(take); }

    // --- reading: ErrorException when the store cannot be read ---
    /// With specs.
    [[nodiscard]] std::optional<api::Job> get(const std::string& id);
    /// Does not ask the disk about jobs that have not ended.
    [[nodiscard]] std::optional<api::JobState> state_of(const std::string& id);
    [[nodiscard]] std::optional<StoredJob> find_by_key(const std::string& key, const std::string& not_before);
    [[nodiscard]] EventPage events(const std::string& id, std::uint64_t after, std::uint32_t limit);
    /// Step of the newest metrics event of a job that has not ended; nullopt: there is none, or it cannot be read.
    [[nodiscard]] std::optional<std::uint64_t> last_metrics_step(const std::string& id);
    /// For a job that has not ended: without specs and checkpoints.
    [[nodiscard]] const api::Job& job(const std::string& id) const { return live_.at(id).stored.job; }
    /// The job has not ended, and this is its last attempt.
    [[nodiscard]] bool is_current(const JobAttempt& attempt) const {
        const auto live = live_.find(attempt.job);
        return live != live_.end() && live->second.stored.job.attempt == attempt.number;
    }
    /// The effective spec of the same job; null: it is not valid.
    [[nodiscard]] const std::shared_ptr<const JobSpec>& spec(const std::string& id) const {
        return live_.at(id).stored.spec;
    }
    /// Number of jobs that wait for something to pass, by the code of their reason.
    [[nodiscard]] const std::map<std::string, std::uint64_t>& waiting();
    /// Number of jobs in each state, as in the store. Asks the store once: counting thousands of rows would be most of
    /// the cost of an event.
    [[nodiscard]] std::vector<std::pair<api::JobState, std::uint64_t>> counts();

    /// Throws ErrorException when create() would. To spare the disk, it tests at most every half second.
    void check_writable();

    // --- writing ---
    /// Stores new jobs with their first events, all or none, and returns their numbers. On disk on return, else
    /// ErrorException.
    std::vector<std::uint64_t> create_all(std::vector<NewJob> jobs);
    std::uint64_t create(StoredJob stored, std::vector<api::JobEvent> events = {}) {
        return create_all({{std::move(stored), std::move(events)}}).front();
    }

    /// Makes an ended job unfinished again; its history continues. Write the changes with append(). `spec` is the
    /// parsed resolved spec. Null: there is no such job. ErrorException when the store cannot be read.
    [[nodiscard]] const StoredJob* revive(const std::string& id, std::shared_ptr<const JobSpec> spec);

    /// For any job; on disk on return. False: no such job. ErrorException when it cannot be written.
    bool set_metadata(const std::string& id, const std::map<std::string, std::string>& metadata);

    /// Removes jobs that have ended, all or none. False: there was none of them. ErrorException when that, or the end
    /// of one, cannot be written.
    bool remove(const std::vector<std::string>& ids);
    bool remove(const std::string& id) { return remove(std::vector{id}); }

    // Changes to a job that has not ended stay in memory until append() writes them.
    void set_progress(const std::string& id, const ProgressEvent& progress);
    void set_evaluation(const std::string& id, const EvaluationEvent& evaluation);
    void add_checkpoint(const std::string& id, api::JobCheckpoint checkpoint);
    /// The effective spec has changed.
    void set_resolved_spec(const std::string& id, std::string spec_json, std::shared_ptr<const JobSpec> spec);
    /// Changes state, reason, times, weights and the like.
    [[nodiscard]] StoredJob& edit(const std::string& id);

    /// Stores an event of a job that had not ended, with the current time and all changes since its last event; wakes
    /// its readers. Keeps in memory what the store refuses.
    void append(const std::string& id, api::JobEvent event);

    /// Keeps the events of a job that had not ended, and its changes, for one transaction at release().
    void hold(const std::string& id);
    void release(const std::string& id);
    /// Writes the changes of a job that has not ended without an event. False: the store refuses.
    bool save(const std::string& id);
    /// StoredJob::attempt_received of such a job, as it is in the store.
    [[nodiscard]] std::uint64_t saved_received(const std::string& id) const { return live_.at(id).saved_received; }
    /// See StoredJob; for a job that has not ended.
    [[nodiscard]] const StoredJob& stored(const std::string& id) const { return live_.at(id).stored; }

    /// The last write to the store failed.
    [[nodiscard]] bool needs_retry() const { return trouble_; }
    /// Tries to write what waits (or anything). If that works, the trouble is over.
    void retry();
    /// Number of events that wait for it.
    [[nodiscard]] std::uint64_t unsaved_events() const noexcept { return unsaved_events_; }
    /// All events of the job are on disk.
    [[nodiscard]] bool is_saved(const std::string& id) const;

  private:
    struct Live {
        StoredJob stored;  ///< without checkpoints, and without specs except a resolved one that is not on disk yet
        bool state_unsaved = false;
        bool held = false;                 ///< see hold()
        std::uint64_t saved_received = 0;  ///< StoredJob::attempt_received
        bool progress_unsaved = false;
        bool evaluation_unsaved = false;
        std::vector<api::JobCheckpoint> unsaved_checkpoints;
        std::vector<api::JobEvent> unsaved_events;
        std::uint64_t lost_events = 0;                ///< dropped for want of room
        std::uint64_t next_drop = 0;                  ///< sequence at which old events are dropped next
        std::optional<api::JobState> stored_state{};  ///< as in the store; nullopt: it is damaged there
        std::optional<std::string> waits_for{};       ///< the code that counts it in waiting_
    };
    [[nodiscard]] api::Job with_newest(api::Job stored) const;
    static JobChange change_of(const Live& live);
    static void make_room(Live& live);
    void show(const std::string& id, Live& live);
    void count_wait(Live& live, std::optional<std::string> code);
    /// The stored state of a job changed; nullopt: it is not in the store.
    void count_state(std::optional<api::JobState> before, std::optional<api::JobState> now);
    /// `before`: number of its events that waited until now.
    void count_unsaved(const std::string& id, const Live& live, std::size_t before);
    /// False: the store refused, and nothing has changed.
    bool write(const std::string& id);
    void drop_old(const std::string& id, Live& live, std::uint64_t sequence);
    void refused(const std::string& why);

    std::unique_ptr<JobStore> store_;
    std::uint32_t metrics_kept_;
    std::uint32_t messages_kept_;
    std::function<void(const std::string& id)> wake_;
    std::function<void()> on_trouble_;
    std::optional<std::chrono::steady_clock::time_point> writable_at_;  ///< when that was last checked
    LiveJobs live_jobs_;
    bool trouble_ = false;
    std::map<std::string, Live> live_;              ///< jobs that have not ended, or whose end is not on disk
    std::set<std::string> edited_;                  ///< those whose wait may not be counted correctly yet
    std::map<std::string, std::uint64_t> waiting_;  ///< by the code of the reason
    std::set<std::string> unsaved_;                 ///< those with events that wait
    std::uint64_t unsaved_events_ = 0;
    std::optional<std::map<api::JobState, std::uint64_t>> counts_;  ///< nullopt: ask the store
};

}  // namespace distilld
