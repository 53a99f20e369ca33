#include "server/jobs/store/job_schema.hpp"

#include <string>

namespace distilld {
namespace {

constexpr std::int64_t kApplicationId = 0x64737464;  // "dstd", in the file's header
constexpr std::int64_t kVersion = 12;

// SQLite writes whole rows. Separate tables therefore hold what is written once (the specs, each checkpoint), what
// changes with the state and what changes with each event, so that writing an event does not grow with the job.
constexpr const char* kTables = R"(
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    owner TEXT NOT NULL,
    owner_id TEXT NOT NULL,
    metadata TEXT NOT NULL,
    name TEXT NOT NULL,
    output TEXT NOT NULL,
    state TEXT NOT NULL,
    cancel_requested INTEGER NOT NULL,
    resume INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    started_at TEXT NOT NULL,
    finished_at TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    attempt_token TEXT NOT NULL,
    attempt_place TEXT NOT NULL,
    attempt_received INTEGER NOT NULL,
    reason_code TEXT,
    reason_message TEXT,
    reason_since TEXT NOT NULL,
    weights_sha256 TEXT NOT NULL,
    exported_eval_loss REAL,
    dtype TEXT NOT NULL,
    priority INTEGER NOT NULL,
    max_concurrent INTEGER,
    task INTEGER,
    task_of TEXT NOT NULL,
    idempotency_key TEXT
);
CREATE INDEX jobs_by_state ON jobs (state, number);
CREATE INDEX jobs_by_key ON jobs (idempotency_key) WHERE idempotency_key IS NOT NULL;
CREATE INDEX jobs_by_array ON jobs (task_of, task) WHERE task_of != '';
CREATE TABLE job_specs (
    job_id TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    spec TEXT NOT NULL,
    resolved_spec TEXT NOT NULL,
    asked TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE job_progress (
    job_id TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    progress TEXT,
    eval_loss REAL,
    eval_kl REAL,
    eval_top1_agreement REAL,
    eval_acceptance_rate REAL
) WITHOUT ROWID;
CREATE TABLE job_checkpoints (
    number INTEGER PRIMARY KEY,
    job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    step INTEGER NOT NULL,
    folder TEXT NOT NULL,
    seconds REAL,
    created_at TEXT NOT NULL,
    bytes INTEGER,
    UNIQUE (job_id, folder)
);
CREATE TABLE job_events (
    job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    sequence INTEGER NOT NULL,
    type TEXT NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (job_id, sequence)
) WITHOUT ROWID;
)";

}  // namespace

void create_job_tables(sqlite::Database& database) {
    const auto application = database.query_integer("PRAGMA application_id");
    const auto version = database.query_integer("PRAGMA user_version");
    const auto tables = database.query_integer("SELECT count(*) FROM sqlite_master");
    if (application != kApplicationId && (application != 0 || version != 0 || tables != 0)) {
        database.refuse("is a database of another program");
    }
    if (application == kApplicationId && version == kVersion) {
        return;
    }
    if (application == kApplicationId) {
        database.refuse(std::string("was written by ") + (version > kVersion ? "a newer" : "an older") +
                        " version of distilld (schema " + std::to_string(version) + ", this one reads " +
                        std::to_string(kVersion) + ")");
    }
    sqlite::Transaction transaction(database);
    database.execute(kTables);
    database.execute("PRAGMA application_id = " + std::to_string(kApplicationId));
    database.execute("PRAGMA user_version = " + std::to_string(kVersion));
    transaction.commit();
}

}  // namespace distilld
