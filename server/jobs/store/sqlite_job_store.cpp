#include "server/jobs/store/sqlite_job_store.hpp"

#include "base/json_text.hpp"
#include "server/jobs/store/job_queries.hpp"
#include "server/jobs/store/job_rows.hpp"
#include "server/jobs/store/job_schema.hpp"
#include "server/support/sqlite.hpp"

namespace distilld {
namespace {

sqlite::Database opened_for_reading(const std::filesystem::path& file) {
    sqlite::Database database(file);
    database.execute("PRAGMA query_only = ON");
    return database;
}

sqlite::Database opened_for_writing(const std::filesystem::path& file) {
    sqlite::Database database(file);
    // First, so that a file that is not ours stays as it is.
    create_job_tables(database);
    database.execute("PRAGMA journal_mode = WAL");
    database.execute("PRAGMA synchronous = FULL");
    database.execute("PRAGMA foreign_keys = ON");
    return database;
}

class SqliteJobReader final : public JobReader {
  public:
    explicit SqliteJobReader(const std::filesystem::path& file) : database_(opened_for_reading(file)) {}
    std::optional<StoredJob> get(std::string_view id) override { return queries_.get(id); }
    JobPage list(const JobQuery& query) override { return queries_.list(query); }
    EventPage events(std::string_view id, std::uint64_t after, std::uint32_t limit) override {
        return queries_.events(id, after, limit);
    }
    EventPage events_before(std::string_view id, std::uint64_t before, std::uint32_t limit) override {
        return queries_.events_before(id, before, limit);
    }
    std::vector<api::JobCheckpoint> checkpoints(std::string_view id) override { return queries_.checkpoints(id); }
    void measurements(std::string_view id, const std::function<void(const api::JobEvent&)>& take) override {
        queries_.measurements(id, take);
    }

  private:
    sqlite::Database database_;  // before the statements, which must end first
    JobQueries queries_{database_};
};

class SqliteJobStore final : public JobStore {
  public:
    explicit SqliteJobStore(const std::filesystem::path& file) : file_(file), database_(opened_for_writing(file)) {}

    std::vector<std::uint64_t> create_all(std::span<const NewJob> jobs) override {
        sqlite::Transaction transaction(database_);
        std::vector<std::uint64_t> numbers;
        for (const auto& [stored, events] : jobs) {
            const auto& job = stored.job;
            bind_new_job(insert_, stored);
            insert_.run();
            numbers.push_back(static_cast<std::uint64_t>(sqlite3_last_insert_rowid(database_.handle())));
            insert_specs_.run(job.id, job.spec_json, job.resolved_spec_json, job.asked_json);
            JobChange rest;
            rest.progress = job.progress ? &*job.progress : nullptr;
            rest.evaluation = job.eval_loss ? &job : nullptr;
            rest.checkpoints = job.checkpoints;
            write_change(job.id, rest);
            write_events(job.id, events, 0);
        }
        transaction.commit();
        return numbers;
    }

    std::optional<StoredJob> get(std::string_view id) override { return queries_.get(id); }

    std::optional<StoredJob> find_by_key(std::string_view key, std::string_view not_before) override {
        by_key_.bind_all(key, not_before);
        return queries_.one(by_key_);
    }

    JobPage list(const JobQuery& query) override { return queries_.list(query); }

    std::vector<StoredJob> unfinished() override {
        std::vector<StoredJob> jobs;
        const auto guard = unfinished_.query();
        while (unfinished_.step()) {
            jobs.push_back(queries_.whole(unfinished_));
        }
        return jobs;
    }

    void ended(const std::function<void(const api::Job&)>& take) override {
        sqlite::Statement select(
            database_, "SELECT id, owner_id, output, resolved_spec FROM jobs JOIN job_specs ON job_id = id WHERE NOT " +
                           is_unfinished() + " AND started_at != ''");
        while (select.step()) {
            api::Job job;
            job.id = select.text(0);
            job.owner_id = select.text(1);
            job.output = select.text(2);
            job.resolved_spec_json = select.text(3);
            take(job);
        }
    }

    std::vector<std::pair<api::JobState, std::uint64_t>> counts() override {
        std::vector<std::pair<api::JobState, std::uint64_t>> result;
        const auto guard = counts_.query();
        while (counts_.step()) {
            if (const auto state = enum_from_string<api::JobState>(counts_.text(0))) {
                result.emplace_back(*state, static_cast<std::uint64_t>(counts_.integer(1)));
            }
        }
        return result;
    }

    std::uint64_t append_events(std::string_view id, std::span<const api::JobEvent> events,
                                const JobChange& change) override {
        sqlite::Transaction transaction(database_);
        write_change(id, change);
        const auto sequence = write_events(id, events, next_sequence(id) - 1);
        transaction.commit();
        return sequence;
    }

    void drop_metrics(std::string_view id, std::uint64_t sequence) override { drop_metrics_.run(id, sequence); }

    void drop_messages(std::string_view id, std::uint32_t kept) override {
        sqlite::Transaction transaction(database_);
        api::JobEvent note;
        {
            const auto guard = newest_dropped_.query(id, kept);
            if (!newest_dropped_.step()) {
                return;
            }
            note.sequence = static_cast<std::uint64_t>(newest_dropped_.integer(0));
            note.created_at = newest_dropped_.text(1);
        }
        {
            const auto guard = count_dropped_.query(id, note.sequence);
            count_dropped_.step();
            const std::int64_t dropped = count_dropped_.integer(0);
            note.level = "warn";
            note.message = std::to_string(dropped) + " older messages are no longer kept";
            note.data["dropped"] = dropped;
        }
        drop_messages_.run(id, note.sequence);
        replace_event_.run(id, note.sequence, to_text(api::to_json_object(note)));
        transaction.commit();
    }

    EventPage events_before(std::string_view id, std::uint64_t before, std::uint32_t limit) override {
        return queries_.events_before(id, before, limit);
    }

    EventPage events(std::string_view id, std::uint64_t after, std::uint32_t limit) override {
        return queries_.events(id, after, limit);
    }

    std::vector<api::JobCheckpoint> checkpoints(std::string_view id) override { return queries_.checkpoints(id); }
    void measurements(std::string_view id, const std::function<void(const api::JobEvent&)>& take) override {
        queries_.measurements(id, take);
    }

    bool set_metadata(std::string_view id, const std::map<std::string, std::string>& metadata) override {
        sqlite::Transaction transaction(database_);
        const bool changed = set_metadata_.run(id, metadata_text(metadata)) != 0;
        transaction.commit();
        return changed;
    }

    bool remove_all(std::span<const std::string> ids) override {
        sqlite::Transaction transaction(database_);
        bool removed = false;
        for (const auto& id : ids) {
            removed = remove_.run(id) != 0 || removed;
        }
        transaction.commit();
        return removed;
    }

    void try_write() override {
        // Writes the present number again: a page and a sync, as for any write.
        const auto version = database_.query_integer("PRAGMA user_version");
        sqlite::Transaction transaction(database_);
        database_.execute("PRAGMA user_version = " + std::to_string(version));
        transaction.commit();
    }

    std::unique_ptr<JobReader> open_reader() override { return std::make_unique<SqliteJobReader>(file_); }

  private:
    /// Call within a transaction.
    void write_change(std::string_view id, const JobChange& change) {
        if (change.state != nullptr) {
            bind_state(update_, *change.state);
            if (update_.run() != 1) {
                throw ErrorException(Error{ErrorKind::internal, "job store: there is no job " + change.state->job.id});
            }
        }
        if (change.progress != nullptr) {
            progress_.run(id, to_text(api::to_json_object(*change.progress)));
        }
        if (const api::Job* job = change.evaluation) {
            evaluation_.run(id, job->eval_loss, job->eval_kl, job->eval_top1_agreement, job->eval_acceptance_rate);
        }
        if (change.resolved_spec != nullptr) {
            update_resolved_spec_.run(id, *change.resolved_spec);
        }
        for (const auto& checkpoint : change.checkpoints) {
            insert_checkpoint_.run(id, checkpoint.step, checkpoint.folder, checkpoint.seconds, checkpoint.created_at,
                                   checkpoint.bytes);
        }
    }

    /// Call within a transaction. Returns the last sequence number.
    std::uint64_t write_events(std::string_view id, std::span<const api::JobEvent> events, std::uint64_t sequence) {
        for (auto event : events) {
            event.sequence = ++sequence;
            insert_event_.run(id, sequence, api::to_string(event.type), to_text(api::to_json_object(event)));
        }
        return sequence;
    }

    std::uint64_t next_sequence(std::string_view id) {
        const auto guard = next_sequence_.query(id);
        next_sequence_.step();
        return static_cast<std::uint64_t>(next_sequence_.integer(0));
    }

    const std::filesystem::path file_;
    sqlite::Database database_;  // before the statements, which must end first
    JobQueries queries_{database_};
    sqlite::Statement insert_{database_, insert_job_text()};
    sqlite::Statement update_{database_, update_job_text()};
    sqlite::Statement insert_specs_{
        database_, "INSERT INTO job_specs (job_id, spec, resolved_spec, asked) VALUES (?1, ?2, ?3, ?4)"};
    sqlite::Statement update_resolved_spec_{database_, "UPDATE job_specs SET resolved_spec = ?2 WHERE job_id = ?1"};
    sqlite::Statement by_key_ =
        select_jobs(database_, "WHERE idempotency_key = ?1 AND created_at >= ?2 ORDER BY number DESC LIMIT 1");
    sqlite::Statement unfinished_ = select_jobs(database_, "WHERE " + is_unfinished() + " ORDER BY number");
    sqlite::Statement counts_{database_, "SELECT state, count(*) FROM jobs GROUP BY state"};
    sqlite::Statement progress_{database_,
                                "INSERT INTO job_progress (job_id, progress) VALUES (?1, ?2) "
                                "ON CONFLICT (job_id) DO UPDATE SET progress = excluded.progress"};
    sqlite::Statement evaluation_{
        database_,
        "INSERT INTO job_progress (job_id, eval_loss, eval_kl, eval_top1_agreement, eval_acceptance_rate) "
        "VALUES (?1, ?2, ?3, ?4, ?5) "
        "ON CONFLICT (job_id) DO UPDATE SET eval_loss = excluded.eval_loss, eval_kl = excluded.eval_kl, "
        "eval_top1_agreement = excluded.eval_top1_agreement, eval_acceptance_rate = excluded.eval_acceptance_rate"};
    // REPLACE gives a row a new number: the newest comes last even if its folder was there before.
    sqlite::Statement insert_checkpoint_{
        database_,
        "INSERT OR REPLACE INTO job_checkpoints (job_id, step, folder, seconds, created_at, bytes) "
        "VALUES (?1, ?2, ?3, ?4, ?5, ?6)"};
    sqlite::Statement next_sequence_{database_,
                                     "SELECT coalesce(max(sequence), 0) + 1 FROM job_events WHERE job_id = ?1"};
    sqlite::Statement insert_event_{
        database_, "INSERT INTO job_events (job_id, sequence, type, document) VALUES (?1, ?2, ?3, ?4)"};
    sqlite::Statement drop_metrics_{database_,
                                    "DELETE FROM job_events WHERE job_id = ?1 AND sequence <= ?2 AND type = 'metrics'"};
    sqlite::Statement newest_dropped_{
        database_,
        "SELECT sequence, CASE WHEN json_valid(document) THEN json_extract(document, '$.created_at') ELSE '' END "
        "FROM job_events WHERE job_id = ?1 AND "
        "type = 'message' ORDER BY sequence DESC LIMIT 1 OFFSET ?2"};
    // One of them may stand for others that were dropped before.
    sqlite::Statement count_dropped_{
        database_,
        "SELECT sum(CASE WHEN json_valid(document) THEN coalesce(json_extract(document, '$.data.dropped'), 1) ELSE "
        "1 END) "
        "FROM job_events WHERE job_id = ?1 AND type = 'message' AND sequence <= ?2"};
    sqlite::Statement drop_messages_{database_,
                                     "DELETE FROM job_events WHERE job_id = ?1 AND sequence < ?2 AND type = 'message'"};
    sqlite::Statement replace_event_{database_,
                                     "UPDATE job_events SET document = ?3 WHERE job_id = ?1 AND sequence = ?2"};
    sqlite::Statement set_metadata_{database_, "UPDATE jobs SET metadata = ?2 WHERE id = ?1"};
    sqlite::Statement remove_{database_, "DELETE FROM jobs WHERE id = ?1"};  // rows that refer to it are removed too
};

}  // namespace

Result<std::unique_ptr<JobStore>> open_sqlite_job_store(const std::filesystem::path& file) {
    try {
        return std::unique_ptr<JobStore>(std::make_unique<SqliteJobStore>(file));
    } catch (const ErrorException& error) {
        return error.error();
    }
}

}  // namespace distilld
