#include "server/jobs/job_schema.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "server/jobs/job_store.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using api::JobState;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file as the first version wrote it, down to the numbers in Boost.JSON's spelling.
constexpr const char* kFirstVersion = R"(
PRAGMA journal_mode = WAL;
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
INSERT INTO jobs (id, state, created_at, resume, idempotency_key, spec, resolved_spec, document) VALUES
    ('job-a', 'failed', '2026-01-01T00:00:00.000Z', 0, 'key', '{ "as" : "sent" }', '{"resolved":1}',
     '{"id":"job-a","object":"job","name":"first","state":"failed","terminal":true,' ||
     '"cancel_requested":false,"created_at":"2026-01-01T00:00:00.000Z",' ||
     '"started_at":"2026-01-01T00:00:01.000Z","finished_at":"2026-01-01T00:09:00.000Z",' ||
     '"status_reason":{"code":"teacher","message":"no answer"},"queue_position":null,' ||
     '"progress":{"step":7,"total_steps":9,"loss":1.25E-3,"kd_loss":null,"stages":[{"stage":"teacher",' ||
     '"busy_seconds":6E1}],"fetch":{"requests":3,"failures":{"timeout":2}}},"eval_loss":2.5E0,' ||
     '"output":"/out/a","weights_sha256":null,"checkpoints":[{"step":4,"folder":"/out/a/4",' ||
     '"seconds":5E-1,"created_at":"2026-01-01T00:04:00.000Z"},{"step":2,"folder":"/out/a/2",' ||
     '"seconds":null,"created_at":null}]}'),
    ('job-b', 'running', '2026-01-02T00:00:00.000Z', 1, NULL, '{}', '{}',
     '{"id":"job-b","object":"job","name":"second","state":"running","terminal":false,' ||
     '"cancel_requested":true,"created_at":"2026-01-02T00:00:00.000Z","started_at":null,' ||
     '"finished_at":null,"status_reason":null,"queue_position":null,"progress":null,"eval_loss":null,' ||
     '"output":"/out/b","weights_sha256":"abc","checkpoints":[]}');
INSERT INTO job_events VALUES
     ('job-a', 1, 'state', '{"sequence":1,"object":"job.event","created_at":"2026-01-01T00:00:00.000Z",' ||
     '"level":"info","type":"state","message":"job queued","data":{"state":"queued"}}'),
     ('job-a', 2, 'metrics', '{"sequence":2,"object":"job.event",' ||
     '"created_at":"2026-01-01T00:00:02.000Z","level":"info","type":"metrics","message":"step 1",' ||
     '"data":{"step":1,"loss":1E0}}'),
     ('job-b', 1, 'state', '{"sequence":1,"object":"job.event","created_at":"2026-01-02T00:00:00.000Z",' ||
     '"level":"info","type":"state","message":"job queued","data":{"state":"queued"}}');
PRAGMA application_id = 1685288036;
PRAGMA user_version = 1;
)";

class JobSchemaTest : public ::testing::Test {
  protected:
    std::filesystem::path file() const { return folder_ / "jobs.sqlite"; }
    std::int64_t ask(const char* sql) const { return sqlite::Database(file()).query_integer(sql); }
    test::TemporaryFolder folder_;
};

TEST_F(JobSchemaTest, BringsUpAFileOfTheFirstVersion) {
    sqlite::Database(file()).execute(kFirstVersion);
    auto opened = open_sqlite_job_store(file());
    ASSERT_TRUE(opened) << opened.error().message;
    auto& store = **opened;
    EXPECT_EQ(ask("PRAGMA user_version"), job_schema_steps().back().version);
    EXPECT_EQ(ask("SELECT count(*) FROM pragma_foreign_key_check"), 0);

    const auto a = store.get("job-a").value();
    EXPECT_EQ(a.idempotency_key, "key");
    EXPECT_EQ(store.find_by_key("key", "2025-01-01")->job.id, "job-a");
    EXPECT_EQ(a.job.kind, api::JobKind::train);
    EXPECT_EQ(a.job.owner, "");
    EXPECT_TRUE(a.job.metadata.empty());
    EXPECT_EQ(a.job.name, "first");
    EXPECT_EQ(a.job.state, JobState::failed);
    EXPECT_EQ(a.job.started_at, "2026-01-01T00:00:01.000Z");
    EXPECT_EQ(a.job.finished_at, "2026-01-01T00:09:00.000Z");
    EXPECT_EQ(a.job.status_reason->code, "teacher");
    EXPECT_EQ(a.job.status_reason->message, "no answer");
    EXPECT_EQ(a.job.progress->step, 7U);
    EXPECT_EQ(a.job.progress->loss, 0.00125);
    EXPECT_EQ(a.job.progress->stages.at(0).busy_seconds, 60.0);
    EXPECT_EQ(a.job.progress->fetch.failures.at("timeout"), 2U);
    EXPECT_EQ(a.job.eval_loss, 2.5);
    EXPECT_EQ(a.job.output, "/out/a");
    EXPECT_EQ(a.job.spec_json, "{ \"as\" : \"sent\" }");
    EXPECT_EQ(a.job.resolved_spec_json, "{\"resolved\":1}");
    ASSERT_EQ(a.job.checkpoints.size(), 2U);
    EXPECT_EQ(a.job.checkpoints[0].folder, "/out/a/4");
    EXPECT_EQ(a.job.checkpoints[0].seconds, 0.5);
    EXPECT_FALSE(a.job.checkpoints[0].bytes);
    EXPECT_EQ(a.job.checkpoints[0].created_at, "2026-01-01T00:04:00.000Z");
    EXPECT_EQ(a.job.checkpoints[1].step, 2U);

    const auto b = store.get("job-b").value();
    EXPECT_TRUE(b.resume);
    EXPECT_TRUE(b.job.cancel_requested);
    EXPECT_EQ(b.job.weights_sha256, "abc");
    EXPECT_FALSE(b.job.progress);
    EXPECT_FALSE(b.job.eval_loss);
    EXPECT_FALSE(b.job.status_reason);
    EXPECT_TRUE(b.job.checkpoints.empty());
    EXPECT_EQ(store.unfinished().size(), 1U);

    const auto events = store.events("job-a", 0, 10).events;
    ASSERT_EQ(events.size(), 2U);
    EXPECT_EQ(events[1].message, "step 1");
    EXPECT_EQ(events[1].data.at("step").to_number<int>(), 1);
    // It goes on where it was: sequences, the order of jobs, and what refers to a job.
    EXPECT_EQ(store.append_event("job-a", events[0]), 3U);
    auto c = b;
    c.job.id = "job-c";
    store.create(c);
    std::vector<std::string> ids;
    for (const auto& stored : store.list({}).jobs) {
        ids.push_back(stored.job.id);
    }
    EXPECT_THAT(ids, ElementsAre("job-c", "job-b", "job-a"));
    EXPECT_THROW(store.append_event("nobody", events[0]), ErrorException);
}

TEST_F(JobSchemaTest, AStepThatFailsLeavesTheFileAsItWas) {
    constexpr std::array kSteps{
        SchemaStep{1, "CREATE TABLE kept (x)"},
        SchemaStep{2, "CREATE TABLE lost (x); INSERT INTO kept VALUES (1); INSERT INTO nowhere VALUES (1)"},
        SchemaStep{3, "CREATE TABLE never (x)"}};
    {
        sqlite::Database database(file());
        EXPECT_THROW(migrate(database, kSteps), ErrorException);
    }
    EXPECT_EQ(ask("PRAGMA user_version"), 1);
    EXPECT_EQ(ask("SELECT count(*) FROM kept"), 0);
    EXPECT_EQ(ask("SELECT count(*) FROM sqlite_master"), 1);
    // Mended, it goes on from there: the first step is not done again.
    constexpr std::array kMended{SchemaStep{1, "CREATE TABLE kept (x)"}, SchemaStep{2, "INSERT INTO kept VALUES (1)"}};
    sqlite::Database database(file());
    migrate(database, kMended);
    EXPECT_EQ(ask("SELECT count(*) FROM kept"), 1);
    EXPECT_EQ(ask("PRAGMA user_version"), 2);
}

TEST_F(JobSchemaTest, AStepMayNotLeaveRowsWithoutTheirJob) {
    constexpr std::array kSteps{SchemaStep{1,
                                           "CREATE TABLE a (id TEXT PRIMARY KEY); CREATE TABLE b (a REFERENCES a (id));"
                                           "INSERT INTO b VALUES ('nobody')"}};
    sqlite::Database database(file());
    try {
        migrate(database, kSteps);
        FAIL();
    } catch (const ErrorException& error) {
        EXPECT_THAT(error.what(), HasSubstr("step 1 of the schema"));
    }
    EXPECT_EQ(ask("PRAGMA user_version"), 0);
}

TEST_F(JobSchemaTest, StepsAreNumberedFromOne) {
    std::int64_t version = 0;
    for (const auto& step : job_schema_steps()) {
        EXPECT_EQ(step.version, ++version);
    }
    EXPECT_GE(version, 2);
}

}  // namespace
}  // namespace distilld
