#include "server/jobs/job_store.hpp"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <limits>

#include "base/json_text.hpp"
#include "server/jobs/sqlite.hpp"

namespace distilld {
namespace {

namespace json = boost::json;

constexpr std::int64_t kSchemaVersion = 1;
constexpr std::int64_t kApplicationId = 0x64737464;  // "dstd", in the file's header
constexpr std::size_t kDocumentDepth = 64;

// A job is kept as one JSON document beside the columns that queries use; the specs never change after creation and
// stand apart, so that an update does not rewrite them.
constexpr const char* kSchema = R"(
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    created_at TEXT NOT NULL,
    resume INTEGER NOT NULL,
    idempotency_key TEXT,
    spec TEXT NOT NULL,
    resolved_spec TEXT NOT NULL,
    document TEXT NOT NULL
);
CREATE INDEX jobs_by_state ON jobs (state, number);
CREATE INDEX jobs_by_key ON jobs (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE TABLE job_events (
    job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    sequence INTEGER NOT NULL,
    type TEXT NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (job_id, sequence)
) WITHOUT ROWID;
)";

constexpr const char* kJobColumns = "SELECT resume, idempotency_key, spec, resolved_spec, document FROM jobs ";

std::string sql(const char* head, const char* tail) {
    return std::string(head) + tail;
}

class SqliteJobStore final : public JobStore {
  public:
    explicit SqliteJobStore(const std::filesystem::path& file) : database_(file) {
        // The file must be known to be ours before anything is written to it.
        const auto application = database_.query_integer("PRAGMA application_id");
        const auto version = database_.query_integer("PRAGMA user_version");
        const auto tables = database_.query_integer("SELECT count(*) FROM sqlite_master");
        if (application != kApplicationId && (application != 0 || version != 0 || tables != 0)) {
            throw ErrorException(io_error(file.string() + ": is a database of another program"));
        }
        if (version > kSchemaVersion) {
            throw ErrorException(io_error(file.string() + ": was written by a newer version (schema " +
                                          std::to_string(version) + ", known up to " + std::to_string(kSchemaVersion) +
                                          ")"));
        }
        database_.execute("PRAGMA journal_mode = WAL");
        database_.execute("PRAGMA synchronous = FULL");
        database_.execute("PRAGMA foreign_keys = ON");
        if (version < 1) {
            create_schema();
        }
        prepare();
    }

    void create(const StoredJob& stored) override {
        auto& statement = *insert_;
        const auto& job = stored.job;
        statement.bind(1, job.id);
        statement.bind(2, api::to_string(job.state));
        statement.bind(3, job.created_at);
        statement.bind(4, std::int64_t{stored.resume});
        if (stored.idempotency_key.empty()) {
            statement.bind_null(5);
        } else {
            statement.bind(5, stored.idempotency_key);
        }
        statement.bind(6, job.spec_json);
        statement.bind(7, job.resolved_spec_json);
        statement.bind(8, document_of(job));
        statement.run();
    }

    void update(const StoredJob& stored) override { update_row(stored); }

    std::optional<StoredJob> get(std::string_view id) override {
        get_->bind(1, id);
        return one(*get_);
    }

    std::optional<StoredJob> find_by_key(std::string_view key, std::string_view not_before) override {
        by_key_->bind(1, key);
        by_key_->bind(2, not_before);
        return one(*by_key_);
    }

    JobPage list(const JobQuery& query) override {
        JobPage page;
        auto& statement = *list_;
        const sqlite::ResetGuard guard(statement);
        statement.bind(1, query.after);
        statement.bind(2, query.state ? api::to_string(*query.state) : "");
        statement.bind(3, std::int64_t{query.limit} + 1);
        while (statement.step()) {
            if (page.jobs.size() == query.limit) {
                page.has_more = true;
                break;
            }
            page.jobs.push_back(job_of(statement));
        }
        return page;
    }

    std::vector<StoredJob> unfinished() override {
        std::vector<StoredJob> jobs;
        const sqlite::ResetGuard guard(*unfinished_);
        while (unfinished_->step()) {
            jobs.push_back(job_of(*unfinished_));
        }
        return jobs;
    }

    std::vector<std::pair<api::JobState, std::uint64_t>> counts() override {
        std::vector<std::pair<api::JobState, std::uint64_t>> result;
        const sqlite::ResetGuard guard(*counts_);
        while (counts_->step()) {
            if (const auto state = api::job_state_from_string(counts_->text(0))) {
                result.emplace_back(*state, static_cast<std::uint64_t>(counts_->integer(1)));
            }
        }
        return result;
    }

    std::uint64_t append_event(std::string_view id, const api::JobEvent& event, const StoredJob* job) override {
        sqlite::Transaction transaction(database_);
        if (job != nullptr) {
            update_row(*job);
        }
        auto numbered = event;
        numbered.sequence = next_sequence(id);
        auto& statement = *insert_event_;
        statement.bind(1, id);
        statement.bind(2, static_cast<std::int64_t>(numbered.sequence));
        statement.bind(3, api::to_string(numbered.type));
        statement.bind(4, json::serialize(api::to_json_object(numbered)));
        statement.run();
        transaction.commit();
        return numbered.sequence;
    }

    void drop_metrics(std::string_view id, std::uint64_t sequence) override {
        drop_metrics_->bind(1, id);
        drop_metrics_->bind(2, static_cast<std::int64_t>(sequence));
        drop_metrics_->run();
    }

    EventPage events(std::string_view id, std::uint64_t after, std::uint32_t limit) override {
        EventPage page;
        constexpr auto kLargest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        auto& statement = *events_;
        const sqlite::ResetGuard guard(statement);
        statement.bind(1, id);
        statement.bind(2, static_cast<std::int64_t>(std::min(after, kLargest)));
        statement.bind(3, std::int64_t{limit} + 1);
        while (statement.step()) {
            if (page.events.size() == limit) {
                page.has_more = true;
                break;
            }
            page.events.push_back(parsed(api::job_event_from_json, statement.text(0), "an event"));
        }
        return page;
    }

  private:
    void create_schema() {
        sqlite::Transaction transaction(database_);
        database_.execute(kSchema);
        database_.execute(("PRAGMA application_id = " + std::to_string(kApplicationId)).c_str());
        database_.execute(("PRAGMA user_version = " + std::to_string(kSchemaVersion)).c_str());
        transaction.commit();
    }

    void prepare() {
        const auto make = [this](const std::string& text) {
            return std::make_unique<sqlite::Statement>(database_, text.c_str());
        };
        insert_ = make(
            "INSERT INTO jobs (id, state, created_at, resume, idempotency_key, spec, resolved_spec, "
            "document) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)");
        update_ = make("UPDATE jobs SET state = ?2, resume = ?3, document = ?4 WHERE id = ?1");
        get_ = make(sql(kJobColumns, "WHERE id = ?1"));
        by_key_ =
            make(sql(kJobColumns, "WHERE idempotency_key = ?1 AND created_at >= ?2 ORDER BY number DESC LIMIT 1"));
        list_ = make(sql(kJobColumns,
                         "WHERE (?1 = '' OR number < (SELECT number FROM jobs WHERE id = ?1)) "
                         "AND (?2 = '' OR state = ?2) ORDER BY number DESC LIMIT ?3"));
        unfinished_ = make(sql(kJobColumns, "WHERE state IN ('queued', 'running') ORDER BY number"));
        counts_ = make("SELECT state, count(*) FROM jobs GROUP BY state");
        next_sequence_ = make("SELECT coalesce(max(sequence), 0) + 1 FROM job_events WHERE job_id = ?1");
        insert_event_ = make("INSERT INTO job_events (job_id, sequence, type, document) VALUES (?1, ?2, ?3, ?4)");
        drop_metrics_ = make("DELETE FROM job_events WHERE job_id = ?1 AND sequence <= ?2 AND type = 'metrics'");
        events_ = make(
            "SELECT document FROM job_events WHERE job_id = ?1 AND sequence > ?2 ORDER BY sequence "
            "LIMIT ?3");
    }

    static std::string document_of(const api::Job& job) { return json::serialize(api::to_json_object(job, false)); }

    template <class T>
    static T parsed(Result<T> (*read)(const json::value&), const std::string& document, const char* what) {
        const auto value = parse_json_text(document, kDocumentDepth);
        if (!value) {
            throw ErrorException(io_error(std::string("job store: ") + what + " is damaged: " + value.error().reason));
        }
        auto result = read(*value);
        if (!result) {
            throw ErrorException(
                io_error(std::string("job store: ") + what + " is damaged: " + result.error().message));
        }
        return *std::move(result);
    }

    static StoredJob job_of(const sqlite::Statement& row) {
        StoredJob stored;
        stored.job = parsed(api::job_from_json, row.text(4), "a job");
        stored.resume = row.integer(0) != 0;
        stored.idempotency_key = row.text(1);
        stored.job.spec_json = row.text(2);
        stored.job.resolved_spec_json = row.text(3);
        return stored;
    }

    static std::optional<StoredJob> one(sqlite::Statement& statement) {
        const sqlite::ResetGuard guard(statement);
        if (!statement.step()) {
            return std::nullopt;
        }
        return job_of(statement);
    }

    void update_row(const StoredJob& stored) {
        update_->bind(1, stored.job.id);
        update_->bind(2, api::to_string(stored.job.state));
        update_->bind(3, std::int64_t{stored.resume});
        update_->bind(4, document_of(stored.job));
        update_->run();
        if (sqlite3_changes(database_.handle()) != 1) {
            throw ErrorException(Error{ErrorKind::internal, "job store: there is no job " + stored.job.id});
        }
    }

    std::uint64_t next_sequence(std::string_view id) {
        const sqlite::ResetGuard guard(*next_sequence_);
        next_sequence_->bind(1, id);
        next_sequence_->step();
        return static_cast<std::uint64_t>(next_sequence_->integer(0));
    }

    using Prepared = std::unique_ptr<sqlite::Statement>;
    sqlite::Database database_;  // before the statements: they end first
    Prepared insert_;
    Prepared update_;
    Prepared get_;
    Prepared by_key_;
    Prepared list_;
    Prepared unfinished_;
    Prepared counts_;
    Prepared next_sequence_;
    Prepared insert_event_;
    Prepared drop_metrics_;
    Prepared events_;
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
