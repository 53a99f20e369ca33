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

#include "server/jobs/job_board.hpp"
#include "server/jobs/job_store.hpp"

namespace distilld {

/// The time now, as jobs and events carry it.
[[nodiscard]] std::string now_text();

/// The store, and what it does not know yet: of each job that has not ended the newest state is in memory and on the
/// board, and is written with the job's next event. A disk that is full must end neither a job nor the service: what
/// cannot be written waits here, up to a bound, and is written in its order when there is space. One thread.
class JobJournal {
  public:
    /// `metrics_kept`, `messages_kept`: about how many metrics events and messages of a job are kept. `wake` is called
    /// when a job has an event.
    JobJournal(std::unique_ptr<JobStore> store, std::uint32_t metrics_kept,
               std::function<void(const std::string& id)> wake, std::uint32_t messages_kept = 10'000);

    /// Events of one job that wait for space: beyond it old ones go, first those of metrics, and the history says so.
    static constexpr std::size_t kMaxUnsavedEvents = 1000;

    [[nodiscard]] const JobBoard& board() const noexcept { return board_; }
    [[nodiscard]] JobBoard& board() noexcept { return board_; }
    /// See JobStore.
    [[nodiscard]] std::unique_ptr<JobReader> open_reader() { return store_->open_reader(); }

    /// Reads the jobs that have not ended, oldest first. Once, before anything else.
    std::vector<StoredJob> restore();

    /// See JobStore. Once, before anything else.
    void ended(const std::function<void(const api::Job&)>& take) { store_->ended(take); }

    // --- reading: ErrorException when the store cannot be read ---
    /// With specs.
    [[nodiscard]] std::optional<api::Job> get(const std::string& id);
    /// No disk is asked about jobs that have not ended.
    [[nodiscard]] std::optional<api::JobState> state_of(const std::string& id);
    [[nodiscard]] std::optional<StoredJob> find_by_key(const std::string& key, const std::string& not_before);
    [[nodiscard]] EventPage events(const std::string& id, std::uint64_t after, std::uint32_t limit);
    /// Of a job that has not ended: without specs and checkpoints.
    [[nodiscard]] const api::Job& job(const std::string& id) const { return live_.at(id).stored.job; }
    /// Jobs that wait for something to pass, by the code of their reason.
    [[nodiscard]] const std::map<std::string, std::uint64_t>& waiting();
    /// Jobs in each state, as the store has them. It is asked once: to count thousands of rows at each event would be
    /// most of what an event costs.
    [[nodiscard]] std::vector<std::pair<api::JobState, std::uint64_t>> counts();

    /// ErrorException when create() would throw one, as of the last half second: nobody keeps the disk busy by asking.
    void check_writable();

    // --- writing ---
    /// A new job, on disk with its first events when this returns; its number. ErrorException when it cannot be.
    std::uint64_t create(StoredJob stored, std::vector<api::JobEvent> events = {});

    /// A job that has ended is to go on: it is one that has not again, and its history goes on behind what it has.
    /// What changes is written with append(). Nothing: there is no such job. ErrorException when the store cannot be
    /// read.
    [[nodiscard]] const StoredJob* revive(const std::string& id);

    /// Of any job, on disk when this returns. False: there is none. ErrorException when it cannot be.
    bool set_metadata(const std::string& id, const std::map<std::string, std::string>& metadata);

    /// Removes a job that has ended. False: there is none. ErrorException when that, or its end, cannot be written.
    bool remove(const std::string& id);

    // What is said of a job that has not ended stays in memory until append() writes it.
    void set_progress(const std::string& id, const ProgressEvent& progress);
    void set_evaluation(const std::string& id, const EvaluationEvent& evaluation);
    void add_checkpoint(const std::string& id, api::JobCheckpoint checkpoint);
    /// What is in force of the spec has changed.
    void set_resolved_spec(const std::string& id, std::string spec_json);
    /// To change state, reason, times, weights and the like.
    [[nodiscard]] StoredJob& edit(const std::string& id);

    /// Stores an event, of now, of a job that has not ended before, with all that was said of the job since the last;
    /// wakes its readers. What the store refuses is kept.
    void append(const std::string& id, api::JobEvent event);

    /// The store could not be written when that was last tried.
    [[nodiscard]] bool needs_retry() const { return trouble_; }
    /// Tries to write what waits (or anything); then the trouble is over.
    void retry();
    /// Events that wait for it.
    [[nodiscard]] std::uint64_t unsaved_events() const noexcept { return unsaved_events_; }
    /// All that happened to the job is on disk.
    [[nodiscard]] bool is_saved(const std::string& id) const;

  private:
    struct Live {
        StoredJob stored;  ///< without checkpoints, and without specs but for a resolved one that is not on disk yet
        bool state_unsaved = false;
        bool progress_unsaved = false;
        bool evaluation_unsaved = false;
        std::vector<api::JobCheckpoint> unsaved_checkpoints;
        std::vector<api::JobEvent> unsaved_events;
        std::uint64_t lost_events = 0;                ///< that there was no room for
        std::uint64_t next_drop = 0;                  ///< sequence at which old events are dropped again
        std::optional<api::JobState> stored_state{};  ///< that the store has; nothing: it is damaged there
        std::optional<std::string> waits_for{};       ///< the code under which waiting_ counts it
    };
    [[nodiscard]] api::Job with_newest(api::Job stored) const;
    static JobChange change_of(const Live& live);
    static void make_room(Live& live);
    void show(const std::string& id, Live& live);
    void count_wait(Live& live, std::optional<std::string> code);
    /// The state of a job on disk was one and is the other now; nothing: it is not there.
    void count_state(std::optional<api::JobState> before, std::optional<api::JobState> now);
    /// Where so many events waited before.
    void count_unsaved(const std::string& id, const Live& live, std::size_t before);
    /// False: the store refused, and all is as before.
    bool write(const std::string& id);
    void drop_old(const std::string& id, Live& live, std::uint64_t sequence);
    void refused(const std::string& why);

    std::unique_ptr<JobStore> store_;
    std::uint32_t metrics_kept_;
    std::uint32_t messages_kept_;
    std::function<void(const std::string& id)> wake_;
    std::optional<std::chrono::steady_clock::time_point> writable_at_;  ///< when that was last seen
    JobBoard board_;
    bool trouble_ = false;
    std::map<std::string, Live> live_;              ///< jobs that have not ended, or whose end is not on disk
    std::set<std::string> edited_;                  ///< of them, those whose wait may not be counted as it is now
    std::map<std::string, std::uint64_t> waiting_;  ///< by the code of the reason
    std::set<std::string> unsaved_;                 ///< of live_, those that have events which wait
    std::uint64_t unsaved_events_ = 0;
    std::optional<std::map<api::JobState, std::uint64_t>> counts_;  ///< nothing: the store is to be asked
};

}  // namespace distilld
