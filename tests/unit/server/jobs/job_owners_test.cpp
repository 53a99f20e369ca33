#include "server/jobs/job_owners.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/jobs/job_store.hpp"
#include "server/jobs/sqlite.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

ApiKey key(const std::string& id, const std::string& name, const std::string& created_at) {
    ApiKey made;
    made.id = id;
    made.name = name;
    made.created_at = created_at;
    return made;
}

TEST(JobOwners, F12WhatKnowsANameAloneGoesToTheKeyThatWasThereBefore) {
    const test::TemporaryFolder folder;
    const auto file = folder / "jobs.sqlite";
    const auto store = open_sqlite_job_store(file).value();
    const std::vector<std::string> days{"2026-01-01T00:00:00.000Z", "2026-01-03T00:00:00.000Z"};
    for (const auto& day : days) {
        StoredJob stored;
        stored.job.id = "job-" + day;
        stored.job.owner = "alice";
        stored.job.created_at = day;
        stored.idempotency_key = "alice\nonce " + day;
        store->create(stored);
    }
    StoredJob known;
    known.job.id = "job-known";
    known.job.owner = "alice";
    known.job.owner_id = "key-revoked";
    known.job.created_at = days.back();
    store->create(known);
    sqlite::Database(file).execute(
        "INSERT INTO files (id, filename, purpose, bytes, created_at, owner) VALUES"
        "('file-1', 'a', 'fine-tune', 1, strftime('%s', '2026-01-01'), 'alice'),"
        "('file-2', 'a', 'fine-tune', 1, strftime('%s', '2026-01-03'), 'alice'),"
        "('file-3', 'a', 'fine-tune', 1, strftime('%s', '2026-01-03'), 'bob')");

    const auto owned = own_by_id(file, {key("key-now", "alice", "2026-01-02T00:00:00.000Z")});
    ASSERT_TRUE(owned) << owned.error().message;
    EXPECT_EQ(store->get("job-" + days[0])->job.owner_id, "") << "an alice of before it: only administrators'";
    const auto later = store->get("job-" + days[1]).value();
    EXPECT_EQ(later.job.owner_id, "key-now");
    EXPECT_EQ(later.job.owner, "alice");
    EXPECT_EQ(later.idempotency_key, "key-now\nonce " + days[1]);
    EXPECT_EQ(store->get("job-known")->job.owner_id, "key-revoked");
    sqlite::Database files(file);
    EXPECT_EQ(files.query_integer("SELECT owner_id = 'key-now' FROM files WHERE id = 'file-2'"), 1);
    EXPECT_EQ(files.query_integer("SELECT count(*) FROM files WHERE owner_id = ''"), 2);
}

}  // namespace
}  // namespace distilld
