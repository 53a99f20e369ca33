#include "server/jobs/store/job_journal.hpp"
#include "server/jobs/store/sqlite_job_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <algorithm>
#include <atomic>

#include "server/jobs/store/event_records.hpp"
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
    EXPECT_EQ(open()->checkpoints("a").size(), 1500U);
}

// Every second event is one of metrics, and none of them has a round number.
TEST_F(JobJournalTest, OldMetricsAreDroppedWhateverTheirNumbers) {
    JobJournal journal(open(), 100, [](const std::string&) {});
    journal.create(job("a"));
    for (std::uint64_t step = 0; step < 560; ++step) {
        journal.append("a", record_of(test::progress_at(step, 1.5)));
        journal.append("a", record_of(LogEvent{"info", "a word"}));
    }
    const auto events = open()->events("a", 0, 2000).events;
    const auto metrics = std::count_if(events.begin(), events.end(),
                                       [](const auto& event) { return event.type == api::EventType::metrics; });
    EXPECT_LE(metrics, 100);
    EXPECT_EQ(events.size() - static_cast<std::size_t>(metrics), 560U) << "the others stay";
}

TEST_F(JobJournalTest, F6OldMessagesAreDroppedByThemselves) {
    JobJournal journal(open(), 1'000'000, [](const std::string&) {}, 100);
    journal.create(job("a"));
    for (int i = 0; i < 110; ++i) {
        journal.append("a", record_of(LogEvent{"info", "a word"}));
    }
    const auto events = open()->events("a", 0, 2000).events;
    EXPECT_EQ(events.front().message, "1 older messages are no longer kept");
    EXPECT_EQ(events.front().level, "warn");
}

TEST_F(JobJournalTest, TellsOnceThatTheStoreRefuses) {
    const auto full = std::make_shared<std::atomic<bool>>(true);
    int troubles = 0;
    JobJournal journal(
        std::make_unique<test::FullDisk>(open(), full), 1000, [](const std::string&) {}, JobJournal::kMessagesKept,
        [&troubles] { ++troubles; });
    *full = false;
    journal.create(job("a"));
    *full = true;
    journal.hold("a");
    journal.append("a", message_record("held"));
    EXPECT_EQ(troubles, 0);
    journal.release("a");
    EXPECT_EQ(troubles, 1) << "nobody but the journal knows of this write";
    journal.append("a", message_record("waits"));
    EXPECT_EQ(troubles, 1);
    *full = false;
    journal.retry();
    EXPECT_TRUE(journal.is_saved("a"));
    *full = true;
    EXPECT_FALSE(journal.save("a"));
    EXPECT_EQ(troubles, 2);
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
    journal.set_evaluation("a", {.loss = 2.5, .kl = 0.5});
    EXPECT_TRUE(journal.needs_retry());
    EXPECT_EQ(journal.live_jobs().trouble()->code, "store_unavailable");
    EXPECT_FALSE(journal.is_saved("a"));
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
    EXPECT_FALSE(journal.live_jobs().trouble());
    EXPECT_FALSE(journal.live_jobs().find("a")) << "the store knows all of it";
    const auto end = open()->get("a")->job;
    EXPECT_EQ(end.state, JobState::succeeded);
    EXPECT_EQ(end.eval_loss, 2.5);
    EXPECT_EQ(end.checkpoints.size(), 2U);
    std::vector<std::string> messages;
    for (const auto& event : open()->events("a", 0, 10).events) {
        messages.push_back(event.message);
    }
    EXPECT_THAT(messages,
                ::testing::ElementsAre("checkpoint of step 1 in /1", "checkpoint of step 2 in /2", "job succeeded"));
    // It has ended: nothing is said of it any more.
    journal.append("a", api::JobEvent{});
    EXPECT_EQ(open()->events("a", 0, 10).events.size(), 3U);
}

/// Counts how often it has to count.
class CountedStore final : public test::FullDisk {
  public:
    CountedStore(std::unique_ptr<JobStore> inner, std::shared_ptr<std::atomic<bool>> full, int& asked)
        : FullDisk(std::move(inner), std::move(full)), asked_(asked) {}
    std::vector<std::pair<JobState, std::uint64_t>> counts() override {
        ++asked_;
        return FullDisk::counts();
    }

  private:
    int& asked_;
};

TEST_F(JobJournalTest, KnowsTheStatesOnDiskWithoutAskingAgain) {
    const auto full = std::make_shared<std::atomic<bool>>(false);
    int asked = 0;
    JobJournal journal(std::make_unique<CountedStore>(open(), full, asked), 1000, [](const std::string&) {});
    const auto expect_the_same = [&](const char* after) {
        auto counts = journal.counts();
        auto stored = open()->counts();
        std::ranges::sort(counts);
        std::ranges::sort(stored);
        EXPECT_EQ(counts, stored) << after;
    };
    const auto to = [&journal](const std::string& id, JobState state) {
        auto& stored = journal.edit(id);
        stored.job.state = state;
        journal.append(id, state_record(stored.job));
    };
    expect_the_same("nothing");
    for (const auto* id : {"a", "b", "c"}) {
        journal.create(job(id));
    }
    expect_the_same("three submissions");
    to("a", JobState::running);
    to("b", JobState::paused);
    expect_the_same("a start and a pause");
    *full = true;
    to("b", JobState::queued);
    to("a", JobState::failed);
    expect_the_same("what the disk refused");
    *full = false;
    journal.retry();
    to("c", JobState::cancelled);
    expect_the_same("two ends");
    ASSERT_NE(journal.revive("a", nullptr), nullptr);
    expect_the_same("a revival that is not written yet");
    to("a", JobState::queued);
    expect_the_same("a revival");
    EXPECT_TRUE(journal.remove("c"));
    EXPECT_FALSE(journal.remove("nobody"));
    expect_the_same("a removal");
    EXPECT_EQ(asked, 1);
    // What a damaged row is, only the store can tell.
    to("b", JobState::succeeded);
    sqlite3* other = nullptr;
    ASSERT_EQ(sqlite3_open((folder_ / "jobs.sqlite").c_str(), &other), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(other, "UPDATE jobs SET state = 'odd' WHERE id = 'b'", nullptr, nullptr, nullptr),
              SQLITE_OK);
    sqlite3_close(other);
    EXPECT_TRUE(journal.remove("b"));
    expect_the_same("the removal of a damaged job");
}

TEST_F(JobJournalTest, CountsThoseThatWaitForSomethingToPass) {
    using ::testing::Pair;
    JobJournal journal(open(), 1000, [](const std::string&) {});
    journal.create(job("a"));
    journal.create(job("b"));
    EXPECT_THAT(journal.waiting(), ::testing::IsEmpty());
    journal.edit("a").job.status_reason = {"teacher_unavailable", "no answer", "t"};
    EXPECT_THAT(journal.waiting(), ::testing::ElementsAre(Pair("teacher_unavailable", 1U))) << "said, not stored yet";
    journal.edit("b").job.status_reason = {"teacher_unavailable", "no answer", "t"};
    journal.append("b", record_of(LogEvent{"info", "a word"}));
    EXPECT_THAT(journal.waiting(), ::testing::ElementsAre(Pair("teacher_unavailable", 2U)));
    journal.edit("b").job.status_reason = {"disk_full", "no room", "t"};
    EXPECT_THAT(journal.waiting(), ::testing::ElementsAre(Pair("disk_full", 1U), Pair("teacher_unavailable", 1U)));
    journal.edit("b").job.status_reason = {"paused_by_user", "", ""};
    EXPECT_THAT(journal.waiting(), ::testing::ElementsAre(Pair("teacher_unavailable", 1U)));
    auto& stored = journal.edit("a");
    stored.job.state = JobState::cancelled;
    journal.append("a", state_record(stored.job));
    EXPECT_THAT(journal.waiting(), ::testing::IsEmpty()) << "it has ended";
}

TEST_F(JobJournalTest, ADatabaseThatIsFullIsWrittenInOrderWhenThereIsSpace) {
    const auto entry = reinterpret_cast<void (*)()>(remember_connection);
    ASSERT_EQ(sqlite3_auto_extension(entry), SQLITE_OK);
    JobJournal journal(open(), 100000, [](const std::string&) {});
    sqlite3_cancel_auto_extension(entry);
    const auto set = [](const char* sql) {
        EXPECT_EQ(sqlite3_exec(newest_connection, sql, nullptr, nullptr, nullptr), SQLITE_OK);
    };
    journal.create(job("a"));
    set("PRAGMA max_page_count = 1");  // no more than it has
    std::uint64_t step = 0;
    while (!journal.needs_retry() && step < 1000) {
        journal.append("a", record_of(test::progress_at(step++, 1.5)));
    }
    ASSERT_TRUE(journal.needs_retry());
    EXPECT_THAT(journal.live_jobs().trouble()->message, ::testing::HasSubstr("full"));
    for (int more = 0; more < 50; ++more) {
        journal.append("a", record_of(test::progress_at(step++, 1.5)));
    }
    journal.retry();
    EXPECT_TRUE(journal.needs_retry());
    EXPECT_EQ(journal.unsaved_events(), 51U);
    set("PRAGMA max_page_count = 100000");
    journal.retry();
    EXPECT_FALSE(journal.needs_retry());
    const auto events = open()->events("a", 0, 2000).events;
    ASSERT_EQ(events.size(), step);
    for (std::uint64_t index = 0; index < step; ++index) {
        EXPECT_EQ(events[index].sequence, index + 1);
        EXPECT_EQ(events[index].data.at("step").to_number<std::uint64_t>(), index);
    }
}

TEST_F(JobJournalTest, WhatIsKeptForAFullDiskIsBoundedAndTheHistorySaysWhatIsMissing) {
    const auto full = std::make_shared<std::atomic<bool>>(false);
    JobJournal journal(std::make_unique<test::FullDisk>(open(), full), 100000, [](const std::string&) {});
    journal.create(job("a"));
    journal.create(job("b"));
    *full = true;
    journal.append("a", record_of(CheckpointEvent{7, "/7", 0.5}));
    for (std::uint64_t step = 0; step < 3000; ++step) {
        journal.append("a", record_of(test::progress_at(step, 1.5)));
    }
    EXPECT_EQ(journal.unsaved_events(), JobJournal::kMaxUnsavedEvents);
    EXPECT_THROW(journal.create(job("c")), ErrorException);
    *full = false;
    journal.append("b", record_of(LogEvent{"info", "a word"}));
    EXPECT_EQ(journal.unsaved_events(), JobJournal::kMaxUnsavedEvents + 1) << "what waits is written in one go";
    journal.retry();
    EXPECT_FALSE(journal.needs_retry());
    EXPECT_EQ(journal.unsaved_events(), 0U);
    const auto events = open()->events("a", 0, 5000).events;
    ASSERT_EQ(events.size(), JobJournal::kMaxUnsavedEvents + 1);
    EXPECT_EQ(events.front().message, "checkpoint of step 7 in /7") << "metrics go first";
    EXPECT_EQ(events.back().message,
              "2001 events are missing here: too many occurred while the job store could not be written");
    EXPECT_EQ(events.at(events.size() - 2).data.at("step").to_number<int>(), 2999);
}

}  // namespace
}  // namespace distilld
