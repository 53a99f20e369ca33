#include "server/jobs/store/sqlite_job_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/resource.h>

#include <boost/json/serialize.hpp>
#include <cmath>
#include <csignal>
#include <fstream>

#include "server/support/sqlite.hpp"
#include "tests/unit/server/jobs/fake_worker.hpp"

namespace distilld {
namespace {

using api::JobState;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class JobStoreTest : public ::testing::Test {
  protected:
    std::filesystem::path file() const { return folder_.path() / "jobs.sqlite"; }
    std::unique_ptr<JobStore> open() const {
        auto store = open_sqlite_job_store(file());
        EXPECT_TRUE(store) << store.error().message;
        return *std::move(store);
    }
    static StoredJob job(const std::string& id, JobState state = JobState::queued) {
        StoredJob stored;
        stored.job.id = id;
        stored.job.name = "n";
        stored.job.state = state;
        stored.job.created_at = "2026-01-01T00:00:00.000Z";
        stored.job.output = "/o/" + id;
        stored.job.spec_json = "{ \"as\" : \"sent\" }";
        stored.job.resolved_spec_json = "{\"resolved\":1}";
        return stored;
    }
    static api::JobEvent event(const std::string& message, api::EventType type = api::EventType::message) {
        api::JobEvent result;
        result.created_at = "2026-01-01T00:00:00.000Z";
        result.message = message;
        result.type = type;
        return result;
    }
    static std::vector<std::string> ids(const std::vector<StoredJob>& jobs) {
        std::vector<std::string> result;
        for (const auto& stored : jobs) {
            result.push_back(stored.job.id);
        }
        return result;
    }

    test::TemporaryFolder folder_;
};

TEST_F(JobStoreTest, KeepsJobsAcrossReopening) {
    auto first = job("a");
    first.resume = true;
    first.idempotency_key = "key";
    first.job.owner = "ada";
    first.job.owner_id = "key-a";
    first.job.metadata = {{"team", "red"}, {"\"quoted\"", "\n"}};
    first.job.status_reason = api::StatusReason{"service_stopped", "later"};
    first.job.started_at = "2026-01-01T00:00:01.000Z";
    first.job.eval_loss = 1.25;
    first.job.progress = test::progress_at(3, std::nan(""));
    first.job.checkpoints_total = 2;
    first.job.checkpoints = {{2, "/c/2", 0.5, "2026-01-01T00:00:02.000Z"},
                             {4, "/c/4", 0.5, "2026-01-01T00:00:03.000Z", 1ULL << 40U}};
    first.job.asked_json = R"({"model":"scratch"})";
    open()->create(first);
    const auto again = open()->get("a");
    ASSERT_TRUE(again);
    EXPECT_EQ(boost::json::serialize(api::to_json_object(again->job, true)),
              boost::json::serialize(api::to_json_object(first.job, true)));
    EXPECT_EQ(again->job.spec_json, first.job.spec_json);
    EXPECT_EQ(again->job.asked_json, first.job.asked_json);
    EXPECT_EQ(again->job.owner_id, first.job.owner_id);
    EXPECT_TRUE(again->resume);
    EXPECT_EQ(again->idempotency_key, "key");
    EXPECT_FALSE(open()->get("b"));
}

TEST_F(JobStoreTest, UpdatesStateAndCounts) {
    const auto store = open();
    auto a = job("a");
    store->create(a);
    store->create(job("b"));
    a.job.state = JobState::failed;
    a.job.status_reason = api::StatusReason{"io", "disk full"};
    a.job.exported_eval_loss = 1.75;
    a.job.dtype = "bf16";
    store->append_event("a", event("over"), {.state = &a});
    EXPECT_EQ(store->get("a")->job.exported_eval_loss, 1.75);
    EXPECT_EQ(store->get("a")->job.dtype, "bf16");
    EXPECT_EQ(store->get("b")->job.exported_eval_loss, std::nullopt);
    EXPECT_EQ(store->get("a")->job.status_reason->message, "disk full");
    EXPECT_THAT(store->counts(),
                ::testing::UnorderedElementsAre(std::pair(JobState::failed, 1U), std::pair(JobState::queued, 1U)));
    EXPECT_EQ(ids(store->unfinished()), std::vector<std::string>{"b"});
    EXPECT_THROW(store->create(job("a")), ErrorException);
}

TEST_F(JobStoreTest, ListsNewestFirstInPages) {
    const auto store = open();
    for (const auto* id : {"a", "b", "c", "d"}) {
        store->create(job(id, *id == 'b' ? JobState::failed : JobState::queued));
    }
    const auto first = store->list({"", 2, {}});
    EXPECT_THAT(ids(first.jobs), ElementsAre("d", "c"));
    EXPECT_TRUE(first.has_more);
    const auto second = store->list({"c", 2, {}});
    EXPECT_THAT(ids(second.jobs), ElementsAre("b", "a"));
    EXPECT_FALSE(second.has_more);
    EXPECT_THAT(ids(store->list({"", 9, JobState::failed}).jobs), ElementsAre("b"));
    EXPECT_THAT(ids(store->list({"d", 9, JobState::queued}).jobs), ElementsAre("c", "a"));
    auto named = job("e");
    named.job.name = "other";
    store->create(named);
    EXPECT_THAT(ids(store->list({"", 9, {}, "other"}).jobs), ElementsAre("e"));
    EXPECT_THAT(ids(store->list({"", 9, JobState::failed, "n"}).jobs), ElementsAre("b"));
}

TEST_F(JobStoreTest, RemovesAJobWithAllThatIsKnownOfIt) {
    const auto store = open();
    const auto progress = test::progress_at(4, 1.5);
    for (const auto* id : {"a", "b"}) {
        store->create(job(id, JobState::failed));
        store->append_event(id, event("e", api::EventType::metrics),
                            {.progress = &progress, .checkpoints = {{1, "/1", 0.1, "t1"}}});
    }
    EXPECT_TRUE(store->remove("a"));
    EXPECT_FALSE(store->remove("a"));
    EXPECT_FALSE(store->get("a"));
    EXPECT_TRUE(store->get("b"));
    sqlite::Database database(file());
    for (const auto* table : {"job_specs", "job_events", "job_progress", "job_checkpoints"}) {
        const auto count = std::string("SELECT count(*) FROM ") + table;
        EXPECT_EQ(database.query_integer(count.c_str()), 1) << table;
    }
    EXPECT_EQ(database.query_integer("SELECT count(*) FROM pragma_foreign_key_check"), 0);
}

TEST_F(JobStoreTest, HandsOverMeasurements) {
    const auto store = open();
    store->create(job("a"));
    store->create(job("b"));
    for (const auto type : {api::EventType::state, api::EventType::metrics, api::EventType::checkpoint,
                            api::EventType::evaluation, api::EventType::message, api::EventType::metrics}) {
        store->append_event("a", event(api::to_string(type), type));
        store->append_event("b", event("other", type));
    }
    const auto other = store->open_reader();
    for (auto* reader : {static_cast<JobReader*>(store.get()), other.get()}) {
        std::vector<std::string> taken;
        reader->measurements(
            "a", [&](const api::JobEvent& one) { taken.push_back(std::to_string(one.sequence) + " " + one.message); });
        EXPECT_THAT(taken, ElementsAre("2 metrics", "4 evaluation", "6 metrics"));
    }
}

TEST_F(JobStoreTest, NumbersEventsWithinAJob) {
    const auto store = open();
    store->create(job("a"));
    store->create(job("b"));
    EXPECT_EQ(store->append_event("a", event("one")), 1U);
    EXPECT_EQ(store->append_event("b", event("other")), 1U);
    auto running = job("a", JobState::running);
    EXPECT_EQ(store->append_event("a", event("two"), {.state = &running}), 2U);
    EXPECT_EQ(store->append_event("a", event("three")), 3U);
    EXPECT_EQ(store->get("a")->job.state, JobState::running);
    const auto page = store->events("a", 1, 1);
    ASSERT_EQ(page.events.size(), 1U);
    EXPECT_EQ(page.events[0].message, "two");
    EXPECT_EQ(page.events[0].sequence, 2U);
    EXPECT_TRUE(page.has_more);
    EXPECT_FALSE(store->events("a", 2, 1).has_more);
    EXPECT_TRUE(store->events("a", ~0ULL, 1).events.empty());
    const auto newest = store->events_before("a", ~0ULL, 1);
    ASSERT_EQ(newest.events.size(), 1U);
    EXPECT_TRUE(newest.has_more);
    const auto older = store->events_before("a", newest.events.front().sequence, 10);
    ASSERT_FALSE(older.events.empty());
    EXPECT_EQ(older.events.front().sequence + 1, newest.events.front().sequence);
    EXPECT_EQ(older.events.back().sequence, 1U);
    EXPECT_FALSE(older.has_more);
    // The update of an unknown job takes its event back with it.
    const auto nobody = job("nobody");
    EXPECT_THROW(store->append_event("a", event("four"), {.state = &nobody}), ErrorException);
    EXPECT_EQ(store->events("a", 0, 10).events.size(), 3U);
    EXPECT_THROW(store->append_event("nobody", event("x")), ErrorException);
}

TEST_F(JobStoreTest, AJobHasItsNewestCheckpoints) {
    const auto store = open();
    const auto kept = [](const std::string& id, const std::string& resolved) {
        StoredJob stored = job(id);
        stored.job.resolved_spec_json = resolved;
        return stored;
    };
    store->create(kept("two", R"({"checkpoint":{"keep":2}})"));
    store->create(kept("all", R"({"checkpoint":{"keep":1000}})"));
    store->create(kept("odd", "not JSON"));
    for (const char* id : {"two", "all", "odd"}) {
        std::vector<api::JobCheckpoint> written;
        for (std::uint64_t step = 1; step <= 3000; ++step) {
            written.push_back({step, "/" + std::to_string(step), 0.1, "t"});
        }
        store->append_event(id, event("checkpoints"), {.checkpoints = written});
    }
    const std::size_t most = api::Job::kMaxShown;
    for (const auto& [id, shown] : {std::pair{"two", std::size_t{2}}, {"all", most}, {"odd", most}}) {
        const auto found = store->get(id)->job;
        ASSERT_EQ(found.checkpoints.size(), shown) << id;
        EXPECT_EQ(found.checkpoints.front().step, 3001 - shown);
        EXPECT_EQ(found.checkpoints.back().step, 3000U);
        EXPECT_EQ(found.checkpoints_total, 3000U);
        EXPECT_EQ(found.max_checkpoints, shown);
        EXPECT_EQ(store->checkpoints(id).size(), 3000U);
    }
    EXPECT_EQ(store->list({}).jobs.at(2).job.checkpoints.size(), 2U);
    EXPECT_EQ(store->get("two")->job.max_checkpoints, 2U);
    EXPECT_LT(boost::json::serialize(api::to_json_object(store->get("all")->job, false)).size(), 5000U);
}

TEST_F(JobStoreTest, EachPartOfAJobChangesAlone) {
    const auto store = open();
    store->create(job("a"));
    store->create(job("b"));
    const auto progress = test::progress_at(4, 1.5);
    store->append_event("a", event("progress"), {.progress = &progress});
    auto evaluated = job("a").job;
    evaluated.eval_loss = 2.5;
    evaluated.eval_kl = 0.5;
    store->append_event("a", event("evaluation"), {.evaluation = &evaluated});
    store->append_event("a", event("checkpoints"), {.checkpoints = {{1, "/1", 0.1, "t1"}, {2, "/2", 0.2, "t2"}}});
    store->append_event("a", event("again"), {.checkpoints = {{3, "/1", 0.3, "t3"}}});
    const auto a = store->get("a")->job;
    EXPECT_EQ(a.state, JobState::queued);
    EXPECT_EQ(a.progress->step, 4U);
    EXPECT_EQ(a.eval_loss, 2.5);
    EXPECT_EQ(a.eval_kl, 0.5);
    EXPECT_EQ(a.eval_top1_agreement, std::nullopt);
    EXPECT_EQ(a.eval_acceptance_rate, std::nullopt);
    ASSERT_EQ(a.checkpoints.size(), 2U);
    EXPECT_EQ(a.checkpoints[0].folder, "/2");
    EXPECT_EQ(a.checkpoints[1].folder, "/1");
    EXPECT_EQ(a.checkpoints[1].step, 3U);
    EXPECT_EQ(a.checkpoints[1].created_at, "t3");
    EXPECT_EQ(a.spec_json, job("a").job.spec_json);
    const auto b = store->get("b")->job;
    EXPECT_TRUE(b.checkpoints.empty());
    EXPECT_FALSE(b.progress);
    EXPECT_EQ(store->list({}).jobs.at(1).job.checkpoints.size(), 2U);
    EXPECT_TRUE(store->list({}).jobs.at(1).job.spec_json.empty());
    JobQuery with_specs;
    with_specs.with_specs = true;
    EXPECT_EQ(store->list(with_specs).jobs.at(1).job.spec_json, a.spec_json);
    EXPECT_THROW(store->append_event("nobody", event("x"), {.evaluation = &evaluated}), ErrorException);
}

TEST_F(JobStoreTest, KeepsSinceWhenAJobWaits) {
    auto waiting = job("a", JobState::running);
    waiting.job.status_reason = {"disk_full", "/out: no space", "2026-01-01T00:00:00.000Z"};
    open()->create(waiting);
    EXPECT_EQ(open()->get("a")->job.status_reason->since, "2026-01-01T00:00:00.000Z");
    waiting.job.status_reason = {"teacher_unavailable", "http://t: refused", "2026-01-02T00:00:00.000Z"};
    open()->append_event("a", event("waits"), {&waiting});
    EXPECT_EQ(open()->get("a")->job.status_reason->since, "2026-01-02T00:00:00.000Z");
    waiting.job.status_reason.reset();
    open()->append_event("a", event("over"), {&waiting});
    EXPECT_FALSE(open()->get("a")->job.status_reason);
}

TEST_F(JobStoreTest, ShowsADamagedRowAsDamaged) {
    const auto store = open();
    for (const auto* id : {"fine", "progress", "state", "text", "metadata"}) {
        store->create(job(id, JobState::running));
        store->append_event(id, event("first"));
    }
    sqlite3* handle = nullptr;
    ASSERT_EQ(sqlite3_open(file().c_str(), &handle), SQLITE_OK);
    const char* damage =
        "INSERT INTO job_progress (job_id, progress) VALUES ('progress', '{\"step\":');"
        "UPDATE jobs SET state = 'dreaming' WHERE id = 'state';"
        "UPDATE jobs SET metadata = '[' WHERE id = 'metadata';"
        "UPDATE jobs SET name = CAST(x'636166E9' AS TEXT), reason_code = 'io', reason_message = CAST(x'E92E' AS TEXT) "
        "WHERE id = 'text';"
        "UPDATE job_events SET document = '{\"sequence\":1,\"type\":\"message\",\"message\":\"' || CAST(x'E9' AS TEXT) "
        "|| '\"}' WHERE job_id = 'text';"
        "UPDATE job_events SET document = 'no JSON' WHERE job_id = 'progress'";
    ASSERT_EQ(sqlite3_exec(handle, damage, nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(handle);
    std::map<std::string, api::Job> jobs;
    for (const auto& stored : store->list({}).jobs) {
        jobs[stored.job.id] = stored.job;
    }
    ASSERT_EQ(jobs.size(), 5U);
    EXPECT_FALSE(jobs["fine"].status_reason);
    EXPECT_EQ(jobs["progress"].state, JobState::running);
    EXPECT_EQ(jobs["progress"].status_reason->code, "damaged");
    EXPECT_THAT(jobs["progress"].status_reason->message, HasSubstr("progress"));
    EXPECT_EQ(jobs["progress"].output, "/o/progress");
    EXPECT_EQ(jobs["metadata"].status_reason->code, "damaged");
    EXPECT_EQ(jobs["state"].state, JobState::failed);
    EXPECT_THAT(jobs["state"].status_reason->message, HasSubstr("unknown state 'dreaming'"));
    EXPECT_EQ(jobs["text"].name, "caf\uFFFD");
    EXPECT_EQ(jobs["text"].status_reason->message, "\uFFFD.");
    EXPECT_EQ(store->unfinished().size(), 4U);
    EXPECT_EQ(store->events("text", 0, 10).events.at(0).message, "\uFFFD");
    const auto damaged = store->events("progress", 0, 10).events.at(0);
    EXPECT_EQ(damaged.sequence, 1U);
    EXPECT_EQ(damaged.level, "error");
    EXPECT_THAT(damaged.message, HasSubstr("damaged"));
}

TEST_F(JobStoreTest, DropsOldMetricsOnly) {
    const auto store = open();
    store->create(job("a"));
    store->append_event("a", event("state", api::EventType::state));
    for (int i = 0; i < 3; ++i) {
        store->append_event("a", event("m", api::EventType::metrics));
    }
    store->drop_metrics("a", 3);
    const auto page = store->events("a", 0, 10);
    ASSERT_EQ(page.events.size(), 2U);
    EXPECT_EQ(page.events[0].sequence, 1U);
    EXPECT_EQ(page.events[1].sequence, 4U);
    EXPECT_EQ(store->append_event("a", event("next")), 5U);
}

TEST_F(JobStoreTest, F6OldMessagesGoAndOneSaysHowMany) {
    const auto store = open();
    store->create(job("a"));
    store->append_event("a", event("state", api::EventType::state));
    for (int i = 0; i < 5; ++i) {
        store->append_event("a", event("said " + std::to_string(i)));
    }
    store->drop_messages("a", 5);
    EXPECT_EQ(store->events("a", 0, 10).events.size(), 6U) << "there are no more than are kept";
    store->drop_messages("a", 3);
    store->drop_messages("a", 2);
    const auto page = store->events("a", 0, 10);
    ASSERT_EQ(page.events.size(), 4U);
    EXPECT_EQ(page.events[0].message, "state");
    EXPECT_EQ(page.events[1].sequence, 4U);
    EXPECT_EQ(page.events[1].message, "3 older messages are no longer kept") << "two went first, then another";
    EXPECT_EQ(page.events[1].level, "warn");
    EXPECT_EQ(page.events[1].data.at("dropped").to_number<int>(), 3);
    EXPECT_EQ(page.events[2].message, "said 3");
    EXPECT_EQ(page.events[3].message, "said 4");
    EXPECT_EQ(store->append_event("a", event("next")), 7U);
}

TEST_F(JobStoreTest, FindsJobsByKeyWhileTheKeyLives) {
    const auto store = open();
    auto a = job("a");
    a.idempotency_key = "k";
    store->create(a);
    EXPECT_EQ(store->find_by_key("k", "2025-12-31T00:00:00.000Z")->job.id, "a");
    EXPECT_FALSE(store->find_by_key("k", "2026-01-02T00:00:00.000Z"));
    EXPECT_FALSE(store->find_by_key("", "2025-12-31T00:00:00.000Z"));
}

TEST_F(JobStoreTest, SaysWhenNothingCanBeWritten) {
    const auto store = open();
    const auto fails = [](const auto& write) {
        try {
            write();
        } catch (const ErrorException&) {
            return true;
        }
        return false;
    };
    // No file of this process may grow: as on a full disk.
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit usual{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &usual), 0);
    const rlimit full{1, usual.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
    const bool checked = fails([&] { store->try_write(); });
    const bool created = fails([&] { store->create(job("a")); });
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &usual), 0);
    EXPECT_TRUE(checked);
    EXPECT_TRUE(created);
    EXPECT_NO_THROW(store->try_write());
    EXPECT_NO_THROW(store->create(job("a")));
    EXPECT_THAT(ids(open()->unfinished()), ElementsAre("a"));
}

TEST_F(JobStoreTest, RefusesFilesThatAreNotItsOwn) {
    std::ofstream(file()) << "this is no database, and it is long enough to have a header of its own. "
                          << std::string(200, 'x');
    EXPECT_THAT(open_sqlite_job_store(file()).error().message, HasSubstr(file().string()));

    std::filesystem::remove(file());
    sqlite3* handle = nullptr;
    ASSERT_EQ(sqlite3_open(file().c_str(), &handle), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(handle, "CREATE TABLE other (x)", nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(handle);
    EXPECT_THAT(open_sqlite_job_store(file()).error().message, HasSubstr("another program"));

    EXPECT_FALSE(open_sqlite_job_store(folder_.path() / "missing" / "jobs.sqlite"));
}

}  // namespace
}  // namespace distilld
