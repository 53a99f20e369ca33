#include "server/jobs/job_schema.hpp"

#include <array>
#include <string>

namespace distilld {
namespace {

constexpr std::int64_t kApplicationId = 0x64737464;  // "dstd", in the file's header

constexpr const char* kFirst = R"(
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

// SQLite writes a row as a whole. So what is written once (the specs, each checkpoint), what changes with the state and
// what changes with each event stand in tables of their own, and what an event writes does not grow with the job's age.
//
// The jobs move into a new table: a table that is renamed takes the references to it along.
constexpr const char* kPartsOfAJob = R"(
CREATE TABLE new_jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    owner TEXT NOT NULL,
    metadata TEXT NOT NULL,
    name TEXT NOT NULL,
    output TEXT NOT NULL,
    state TEXT NOT NULL,
    cancel_requested INTEGER NOT NULL,
    resume INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    started_at TEXT NOT NULL,
    finished_at TEXT NOT NULL,
    reason_code TEXT,
    reason_message TEXT,
    weights_sha256 TEXT NOT NULL,
    idempotency_key TEXT
);
INSERT INTO new_jobs SELECT number, id, 'train', '', '{}',
    coalesce(json_extract(document, '$.name'), ''),
    coalesce(json_extract(document, '$.output'), ''),
    state,
    coalesce(json_extract(document, '$.cancel_requested'), 0),
    resume, created_at,
    coalesce(json_extract(document, '$.started_at'), ''),
    coalesce(json_extract(document, '$.finished_at'), ''),
    json_extract(document, '$.status_reason.code'),
    json_extract(document, '$.status_reason.message'),
    coalesce(json_extract(document, '$.weights_sha256'), ''),
    idempotency_key FROM jobs ORDER BY number;
CREATE TABLE job_specs (
    job_id TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    spec TEXT NOT NULL,
    resolved_spec TEXT NOT NULL
) WITHOUT ROWID;
INSERT INTO job_specs SELECT id, spec, resolved_spec FROM jobs;
CREATE TABLE job_progress (
    job_id TEXT PRIMARY KEY REFERENCES jobs (id) ON DELETE CASCADE,
    progress TEXT,
    eval_loss REAL
) WITHOUT ROWID;
INSERT INTO job_progress SELECT id, json_extract(document, '$.progress'), json_extract(document, '$.eval_loss')
    FROM jobs
    WHERE json_extract(document, '$.progress') IS NOT NULL OR json_extract(document, '$.eval_loss') IS NOT NULL;
CREATE TABLE job_checkpoints (
    number INTEGER PRIMARY KEY,
    job_id TEXT NOT NULL REFERENCES jobs (id) ON DELETE CASCADE,
    step INTEGER NOT NULL,
    folder TEXT NOT NULL,
    seconds REAL,
    created_at TEXT NOT NULL,
    UNIQUE (job_id, folder)
);
INSERT INTO job_checkpoints (job_id, step, folder, seconds, created_at)
    SELECT jobs.id, json_extract(one.value, '$.step'), json_extract(one.value, '$.folder'),
        json_extract(one.value, '$.seconds'), coalesce(json_extract(one.value, '$.created_at'), '')
    FROM jobs, json_each(jobs.document, '$.checkpoints') AS one ORDER BY jobs.number, one.key;
DROP TABLE jobs;
ALTER TABLE new_jobs RENAME TO jobs;
CREATE INDEX jobs_by_state ON jobs (state, number);
CREATE INDEX jobs_by_key ON jobs (idempotency_key) WHERE idempotency_key IS NOT NULL;
)";

constexpr const char* kSinceWhenAJobWaits = "ALTER TABLE jobs ADD COLUMN reason_since TEXT NOT NULL DEFAULT ''";

constexpr const char* kExportedLoss = "ALTER TABLE jobs ADD COLUMN exported_eval_loss REAL";

constexpr const char* kDtypeTeacherBytes = R"(
ALTER TABLE jobs ADD COLUMN dtype TEXT NOT NULL DEFAULT '';
ALTER TABLE job_progress ADD COLUMN eval_kl REAL;
ALTER TABLE job_progress ADD COLUMN eval_top1_agreement REAL;
ALTER TABLE job_checkpoints ADD COLUMN bytes INTEGER;
)";

constexpr const char* kPriorityAndLimit = R"(
ALTER TABLE jobs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN max_concurrent INTEGER;
)";

// What was asked of the alias for OpenAI's clients, as it was asked; and the files that they upload.
constexpr const char* kUploadedFiles = R"(
ALTER TABLE job_specs ADD COLUMN asked TEXT NOT NULL DEFAULT '';
CREATE TABLE files (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    filename TEXT NOT NULL,
    purpose TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    owner TEXT NOT NULL DEFAULT ''
);
)";

// An event for each receiver, written with the state that it is about: no end of the service can come in between. The
// body is filled in when the event is sent for the first time, and stays the same.
constexpr const char* kWebhooks = R"(
CREATE TABLE webhook_receivers (
    url TEXT PRIMARY KEY
) WITHOUT ROWID;
CREATE TABLE webhook_events (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    url TEXT NOT NULL,
    job_id TEXT NOT NULL,
    type TEXT NOT NULL,
    created_at TEXT NOT NULL,
    body TEXT NOT NULL DEFAULT '',
    attempts INTEGER NOT NULL DEFAULT 0,
    next_attempt REAL NOT NULL DEFAULT 0
);
CREATE INDEX webhook_events_by_time ON webhook_events (url, next_attempt);
CREATE TRIGGER webhook_event_of_an_end AFTER UPDATE OF state ON jobs
WHEN NEW.state IN ('succeeded', 'failed', 'cancelled') AND OLD.state <> NEW.state
BEGIN
    INSERT INTO webhook_events (id, url, job_id, type, created_at)
    SELECT 'evt_' || lower(hex(randomblob(12))), url, NEW.id, 'job.' || NEW.state, NEW.finished_at
    FROM webhook_receivers;
END;
)";

// The id of the key: its name may be another's later. Rows without one are administrators' alone (job_owners.hpp).
constexpr const char* kOwnersById = R"(
ALTER TABLE jobs ADD COLUMN owner_id TEXT NOT NULL DEFAULT '';
ALTER TABLE files ADD COLUMN owner_id TEXT NOT NULL DEFAULT '';
)";

constexpr std::array kSteps{
    SchemaStep{1, kFirst},         SchemaStep{2, kPartsOfAJob},       SchemaStep{3, kSinceWhenAJobWaits},
    SchemaStep{4, kExportedLoss},  SchemaStep{5, kDtypeTeacherBytes}, SchemaStep{6, kPriorityAndLimit},
    SchemaStep{7, kUploadedFiles}, SchemaStep{8, kWebhooks},          SchemaStep{9, kOwnersById}};

void apply(sqlite::Database& database, const SchemaStep& step) {
    sqlite::Transaction transaction(database);
    database.execute(step.sql);
    if (database.query_integer("SELECT count(*) FROM pragma_foreign_key_check") != 0) {
        database.refuse("step " + std::to_string(step.version) + " of the schema would leave rows without their job");
    }
    database.execute(("PRAGMA application_id = " + std::to_string(kApplicationId)).c_str());
    database.execute(("PRAGMA user_version = " + std::to_string(step.version)).c_str());
    transaction.commit();
}

}  // namespace

std::span<const SchemaStep> job_schema_steps() noexcept {
    return kSteps;
}

void migrate(sqlite::Database& database, std::span<const SchemaStep> steps) {
    const auto application = database.query_integer("PRAGMA application_id");
    const auto version = database.query_integer("PRAGMA user_version");
    const auto tables = database.query_integer("SELECT count(*) FROM sqlite_master");
    if (application != kApplicationId && (application != 0 || version != 0 || tables != 0)) {
        database.refuse("is a database of another program");
    }
    const auto newest = steps.empty() ? 0 : steps.back().version;
    if (version > newest) {
        database.refuse("was written by a newer version (schema " + std::to_string(version) + ", known up to " +
                        std::to_string(newest) + ")");
    }
    // Dropping a table would take along what refers to it; each step checks the references itself.
    database.execute("PRAGMA foreign_keys = OFF");
    for (const auto& step : steps) {
        if (step.version > version) {
            apply(database, step);
        }
    }
}

}  // namespace distilld
