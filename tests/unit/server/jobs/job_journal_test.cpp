#include "server/jobs/job_journal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include "server/jobs/event_records.hpp"
#include "tests/unit/server/jobs/fake_worker.hpp"
#include "tests/unit/server/jobs/full_disk.hpp"

namespace distilld {
namespace {

using api::JobState;

sqlite3* newest_connection = nullptr;

int remember_connection(sqlite3* connection, const char**, const sqlite3_api_routines*) {
    newest_connection = connection;
    return SQLITE_OK;
}

/// Pages that the newest connection has written so far.
int pages_written() {
    int now = 0;
    int peak = 0;
    EXPECT_EQ(sqlite3_db_status(newest_connection, SQLITE_DBSTATUS_CACHE_WRITE, &now, &peak, 0), SQLITE_OK);
    return now;
}

class JobJournalTest : public ::testing::Test {
  protected:
    std::unique_ptr<JobStore> open() const { return open_sqlite_job_store(folder_ / "jobs.sqlite").value(); }
    static StoredJob job(const std::string& id) {
        StoredJob stored;
        stored.job.id = id;
        stored.job.spec_json = std::string(20000, 'x');
        return stored;
    }
    test::TemporaryFolder folder_;
};

// With the specs, or with all earlier checkpoints in what an event writes, this is far off.
TEST_F(JobJournalTest, AnEventCostsTheSameAfterThousands) {
    const auto entry = reinterpret_cast<void (*)()>(remember_connection);
    ASSERT_EQ(sqlite3_auto_extension(entry), SQLITE_OK);
    JobJournal journal(open(), 1000000, [](const std::string&) {});
    sqlite3_cancel_auto_extension(entry);
    // What is counted is pages, not how long the disk takes.
    ASSERT_EQ(sqlite3_exec(newest_connection, "PRAGMA synchronous = OFF", nullptr, nullptr, nullptr), SQLITE_OK);
    journal.create(job("a"));
    const auto write = [&](std::uint64_t first, std::uint64_t end) {
        const auto before = pages_written();
        for (auto step = first; step < end; ++step) {
            const auto progress = test::progress_at(step, 1.5);
            const CheckpointEvent checkpoint{step, "/out/a/checkpoints/step-" + std::to_string(step), 0.5};
            journal.set_progress("a", progress);
            journal.append("a", record_of(progress));
            journal.add_checkpoint("a", {step, checkpoint.folder, 0.5, now_text()});
            journal.append("a", record_of(checkpoint));
        }
        return pages_written() - before;
    };
    const auto first = write(0, 500);
    static_cast<void>(write(500, 1000));
    const auto last = write(1000, 1500);
    EXPECT_GT(first, 1000) << "each event is a transaction that writes a page at least";
    EXPECT_LT(last, first * 5 / 4) << "pages for 1,000 events after 2,000, against those for the first 1,000";
    EXPECT_LT(last, 8000) << "pages for 1,000 events";
    EXPECT_EQ(open()->get("a")->job.checkpoints.size(), 1500U);
}

TEST_F(JobJournalTest, ShowsWhatAFullDiskRefusesAndWritesItLater) {
    const auto full = std::make_shared<std::atomic<bool>>(false);
    std::vector<std::string> woken;
    JobJournal journal(std::make_unique<test::FullDisk>(open(), full), 1000,
                       [&](const std::string& id) { woken.push_back(id); });
    journal.create(job("a"));
    journal.edit("a").job.state = JobState::running;
    journal.add_checkpoint("a", {1, "/1", 0.5, "t"});
    journal.append("a", record_of(CheckpointEvent{1, "/1", 0.5}));
    *full = true;
    journal.add_checkpoint("a", {2, "/2", 0.5, "t"});
    journal.append("a", record_of(CheckpointEvent{2, "/2", 0.5}));
    journal.set_eval_loss("a", 2.5);
    EXPECT_FALSE(journal.needs_retry()) << "the job runs: its next event brings it all";
    EXPECT_EQ(woken.size(), 2U);
    EXPECT_EQ(journal.get("a")->checkpoints.size(), 2U);
    EXPECT_EQ(journal.get("a")->spec_json, job("a").job.spec_json);
    EXPECT_EQ(open()->get("a")->job.checkpoints.size(), 1U);

    auto& stored = journal.edit("a");
    stored.job.state = JobState::succeeded;
    journal.append("a", state_record(stored.job));
    EXPECT_TRUE(journal.needs_retry());
    EXPECT_EQ(journal.state_of("a"), JobState::succeeded);
    EXPECT_EQ(open()->get("a")->job.state, JobState::running);
    *full = false;
    journal.retry();
    EXPECT_FALSE(journal.needs_retry());
    const auto end = open()->get("a")->job;
    EXPECT_EQ(end.state, JobState::succeeded);
    EXPECT_EQ(end.eval_loss, 2.5);
    EXPECT_EQ(end.checkpoints.size(), 2U);
    EXPECT_EQ(open()->events("a", 0, 10).events.back().message, "job succeeded");
    // It has ended: nothing is said of it any more.
    journal.append("a", api::JobEvent{});
    EXPECT_EQ(open()->events("a", 0, 10).events.size(), 2U);
}

}  // namespace
}  // namespace distilld
