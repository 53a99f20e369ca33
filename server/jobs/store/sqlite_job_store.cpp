#include "server/jobs/store/sqlite_job_store.hpp"

#include "base/json_text.hpp"
#include "server/jobs/store/job_queries.hpp"
#include "server/jobs/store/job_rows.hpp"
#include "server/jobs/store/job_schema.hpp"
#include "server/support/sqlite.hpp"

namespace distilld {
namespace {

class SqliteJobReader final : public JobReader {
  public:
    explicit SqliteJobReader(const std::filesystem::path& file) : database_(file), queries_(database_) {
        database_.execute("PRAGMA query_only = ON");
    }
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
    JobQueries queries_;
};

class SqliteJobStore final : public JobStore {
  public:
    explicit SqliteJobStore(const std::filesystem::path& file) : file_(file), database_(file) {
        // First, so that a file that is not ours stays as it is.
        create_job_tables(database_);
        database_.execute("PRAGMA journal_mode = WAL");
        database_.execute("PRAGMA synchronous = FULL");
        database_.execute("PRAGMA foreign_keys = ON");
        prepare();
    }

    std::uint64_t create(const StoredJob& stored, std::span<const api::JobEvent> events) override {
        sqlite::Transaction transaction(database_);
        const auto& job = stored.job;
        bind_new_job(*insert_, stored);
        insert_->run();
        const auto number = sqlite3_last_insert_rowid(database_.handle());
        insert_specs_->bind(1, job.id);
        insert_specs_->bind(2, job.spec_json);
        insert_specs_->bind(3, job.resolved_spec_json);
        insert_specs_->bind(4, job.asked_json);
        insert_specs_->run();
        JobChange rest;
        rest.progress = job.progress ? &*job.progress : nullptr;
        rest.evaluation = job.eval_loss ? &job : nullptr;
        rest.checkpoints = job.checkpoints;
        write_change(job.id, rest);
        write_events(job.id, events, 0);
        transaction.commit();
        return static_cast<std::uint64_t>(number);
    }

    std::optional<StoredJob> get(std::string_view id) override { return queries_->get(id); }

    std::optional<StoredJob> find_by_key(std::string_view key, std::string_view not_before) override {
        by_key_->bind(1, key);
        by_key_->bind(2, not_before);
        return queries_->one(*by_key_);
    }

    JobPage list(const JobQuery& query) override { return queries_->list(query); }

    std::vector<StoredJob> unfinished() override {
        std::vector<StoredJob> jobs;
        const sqlite::ResetGuard guard(*unfinished_);
        while (unfinished_->step()) {
            jobs.push_back(queries_->whole(*unfinished_));
        }
        return jobs;
    }

    void ended(const std::function<void(const api::Job&)>& take) override {
        const std::string text =
            "SELECT id, owner_id, output, resolved_spec FROM jobs JOIN job_specs ON job_id = id WHERE NOT " +
            is_unfinished() + " AND started_at != ''";
        sqlite::Statement select(database_, text.c_str());
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
        const sqlite::ResetGuard guard(*counts_);
        while (counts_->step()) {
            if (const auto state = enum_from_string<api::JobState>(counts_->text(0))) {
                result.emplace_back(*state, static_cast<std::uint64_t>(counts_->integer(1)));
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

    void drop_metrics(std::string_view id, std::uint64_t sequence) override {
        drop_metrics_->bind(1, id);
        drop_metrics_->bind(2, static_cast<std::int64_t>(sequence));
        drop_metrics_->run();
    }

    void drop_messages(std::string_view id, std::uint32_t kept) override {
        sqlite::Transaction transaction(database_);
        api::JobEvent note;
        {
            const sqlite::ResetGuard guard(*newest_dropped_);
            newest_dropped_->bind(1, id);
            newest_dropped_->bind(2, static_cast<std::int64_t>(kept));
            if (!newest_dropped_->step()) {
                return;
            }
            note.sequence = static_cast<std::uint64_t>(newest_dropped_->integer(0));
            note.created_at = newest_dropped_->text(1);
        }
        const auto sequence = static_cast<std::int64_t>(note.sequence);
        {
            const sqlite::ResetGuard guard(*count_dropped_);
            count_dropped_->bind(1, id);
            count_dropped_->bind(2, sequence);
            count_dropped_->step();
            const std::int64_t dropped = count_dropped_->integer(0);
            note.level = "warn";
            note.message = std::to_string(dropped) + " older messages are no longer kept";
            note.data["dropped"] = dropped;
        }
        drop_messages_->bind(1, id);
        drop_messages_->bind(2, sequence);
        drop_messages_->run();
        replace_event_->bind(1, id);
        replace_event_->bind(2, sequence);
        replace_event_->bind(3, to_text(api::to_json_object(note)));
        replace_event_->run();
        transaction.commit();
    }

    EventPage events_before(std::string_view id, std::uint64_t before, std::uint32_t limit) override {
        return queries_->events_before(id, before, limit);
    }

    EventPage events(std::string_view id, std::uint64_t after, std::uint32_t limit) override {
        return queries_->events(id, after, limit);
    }

    std::vector<api::JobCheckpoint> checkpoints(std::string_view id) override { return queries_->checkpoints(id); }
    void measurements(std::string_view id, const std::function<void(const api::JobEvent&)>& take) override {
        queries_->measurements(id, take);
    }

    bool set_metadata(std::string_view id, const std::map<std::string, std::string>& metadata) override {
        sqlite::Transaction transaction(database_);
        set_metadata_->bind(1, id);
        set_metadata_->bind(2, metadata_text(metadata));
        set_metadata_->run();
        const bool changed = sqlite3_changes(database_.handle()) != 0;
        transaction.commit();
        return changed;
    }

    bool remove(std::string_view id) override {
        sqlite::Transaction transaction(database_);
        remove_->bind(1, id);
        remove_->run();
        const bool removed = sqlite3_changes(database_.handle()) != 0;
        transaction.commit();
        return removed;
    }

    void try_write() override {
        // Writes the present number again: a page and a sync, as for any write.
        const auto version = database_.query_integer("PRAGMA user_version");
        sqlite::Transaction transaction(database_);
        database_.execute(("PRAGMA user_version = " + std::to_string(version)).c_str());
        transaction.commit();
    }

    std::unique_ptr<JobReader> open_reader() override { return std::make_unique<SqliteJobReader>(file_); }

  private:
    void prepare() {
        const auto make = [this](const std::string& text) {
            return std::make_unique<sqlite::Statement>(database_, text.c_str());
        };
        const auto select = [this](const char* tail) {
            return std::make_unique<sqlite::Statement>(select_jobs(database_, tail));
        };
        queries_ = std::make_unique<JobQueries>(database_);
        insert_ = make(insert_job_text());
        update_ = make(update_job_text());
        insert_specs_ = make("INSERT INTO job_specs (job_id, spec, resolved_spec, asked) VALUES (?1, ?2, ?3, ?4)");
        update_resolved_spec_ = make("UPDATE job_specs SET resolved_spec = ?2 WHERE job_id = ?1");
        by_key_ = select("WHERE idempotency_key = ?1 AND created_at >= ?2 ORDER BY number DESC LIMIT 1");
        unfinished_ = select(("WHERE " + is_unfinished() + " ORDER BY number").c_str());
        counts_ = make("SELECT state, count(*) FROM jobs GROUP BY state");
        progress_ = make(
            "INSERT INTO job_progress (job_id, progress) VALUES (?1, ?2) "
            "ON CONFLICT (job_id) DO UPDATE SET progress = excluded.progress");
        evaluation_ = make(
            "INSERT INTO job_progress (job_id, eval_loss, eval_kl, eval_top1_agreement) VALUES (?1, ?2, ?3, ?4) "
            "ON CONFLICT (job_id) DO UPDATE SET eval_loss = excluded.eval_loss, eval_kl = excluded.eval_kl, "
            "eval_top1_agreement = excluded.eval_top1_agreement");
        // REPLACE gives a row a new number: the newest comes last even if its folder was there before.
        insert_checkpoint_ = make(
            "INSERT OR REPLACE INTO job_checkpoints (job_id, step, folder, seconds, created_at, bytes) "
            "VALUES (?1, ?2, ?3, ?4, ?5, ?6)");
        next_sequence_ = make("SELECT coalesce(max(sequence), 0) + 1 FROM job_events WHERE job_id = ?1");
        insert_event_ = make("INSERT INTO job_events (job_id, sequence, type, document) VALUES (?1, ?2, ?3, ?4)");
        drop_metrics_ = make("DELETE FROM job_events WHERE job_id = ?1 AND sequence <= ?2 AND type = 'metrics'");
        newest_dropped_ = make(
            "SELECT sequence, CASE WHEN json_valid(document) THEN json_extract(document, '$.created_at') ELSE '' END "
            "FROM job_events WHERE job_id = ?1 AND "
            "type = 'message' ORDER BY sequence DESC LIMIT 1 OFFSET ?2");
        // One of them may stand for others that were dropped before.
        count_dropped_ = make(
            "SELECT sum(CASE WHEN json_valid(document) THEN coalesce(json_extract(document, '$.data.dropped'), 1) ELSE "
            "1 END) "
            "FROM job_events WHERE job_id = ?1 AND type = 'message' AND sequence <= ?2");
        drop_messages_ = make("DELETE FROM job_events WHERE job_id = ?1 AND sequence < ?2 AND type = 'message'");
        replace_event_ = make("UPDATE job_events SET document = ?3 WHERE job_id = ?1 AND sequence = ?2");
        set_metadata_ = make("UPDATE jobs SET metadata = ?2 WHERE id = ?1");
        remove_ = make("DELETE FROM jobs WHERE id = ?1");  // rows that refer to it are removed too
    }

    /// Call within a transaction.
    void write_change(std::string_view id, const JobChange& change) {
        if (change.state != nullptr) {
            bind_state(*update_, *change.state);
            update_->run();
            if (sqlite3_changes(database_.handle()) != 1) {
                throw ErrorException(Error{ErrorKind::internal, "job store: there is no job " + change.state->job.id});
            }
        }
        if (change.progress != nullptr) {
            progress_->bind(1, id);
            progress_->bind(2, to_text(api::to_json_object(*change.progress)));
            progress_->run();
        }
        if (change.evaluation != nullptr) {
            evaluation_->bind(1, id);
            evaluation_->bind(2, change.evaluation->eval_loss);
            evaluation_->bind(3, change.evaluation->eval_kl);
            evaluation_->bind(4, change.evaluation->eval_top1_agreement);
            evaluation_->run();
        }
        if (change.resolved_spec != nullptr) {
            update_resolved_spec_->bind(1, id);
            update_resolved_spec_->bind(2, *change.resolved_spec);
            update_resolved_spec_->run();
        }
        for (const auto& checkpoint : change.checkpoints) {
            insert_checkpoint_->bind(1, id);
            insert_checkpoint_->bind(2, static_cast<std::int64_t>(checkpoint.step));
            insert_checkpoint_->bind(3, checkpoint.folder);
            insert_checkpoint_->bind(4, checkpoint.seconds);
            insert_checkpoint_->bind(5, checkpoint.created_at);
            insert_checkpoint_->bind(6, checkpoint.bytes);
            insert_checkpoint_->run();
        }
    }

    /// Call within a transaction. Returns the last sequence number.
    std::uint64_t write_events(std::string_view id, std::span<const api::JobEvent> events, std::uint64_t sequence) {
        for (auto event : events) {
            event.sequence = ++sequence;
            insert_event_->bind(1, id);
            insert_event_->bind(2, static_cast<std::int64_t>(sequence));
            insert_event_->bind(3, api::to_string(event.type));
            insert_event_->bind(4, to_text(api::to_json_object(event)));
            insert_event_->run();
        }
        return sequence;
    }

    std::uint64_t next_sequence(std::string_view id) {
        const sqlite::ResetGuard guard(*next_sequence_);
        next_sequence_->bind(1, id);
        next_sequence_->step();
        return static_cast<std::uint64_t>(next_sequence_->integer(0));
    }

    using Prepared = std::unique_ptr<sqlite::Statement>;
    const std::filesystem::path file_;
    sqlite::Database database_;  // before the statements, which must end first
    std::unique_ptr<JobQueries> queries_;
    Prepared insert_;
    Prepared update_;
    Prepared insert_specs_;
    Prepared update_resolved_spec_;
    Prepared by_key_;
    Prepared unfinished_;
    Prepared counts_;
    Prepared progress_;
    Prepared evaluation_;
    Prepared insert_checkpoint_;
    Prepared next_sequence_;
    Prepared insert_event_;
    Prepared drop_metrics_;
    Prepared newest_dropped_;
    Prepared count_dropped_;
    Prepared drop_messages_;
    Prepared replace_event_;
    Prepared set_metadata_;
    Prepared remove_;
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
