#include "server/jobs/store/journal_attempt.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/async/run_on.hpp"
#include "server/jobs/store/event_records.hpp"
#include "tests/unit/server/jobs/fake_worker.hpp"
#include "tests/unit/server/jobs/full_disk.hpp"

namespace distilld {
namespace {

using api::JobState;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class JournalAttemptTest : public ::testing::Test {
  protected:
    JournalAttemptTest() {
        StoredJob stored;
        stored.job.id = "a";
        journal_.create(stored);
        journal_.edit("a").job.state = JobState::running;
        journal_.edit("a").job.attempt = 2;
        journal_.append("a", message_record("begun"));
    }
    std::unique_ptr<JobStore> open() const { return open_sqlite_job_store(folder_ / "jobs.sqlite").value(); }
    StoredJob on_disk() const { return open()->unfinished().at(0); }
    std::vector<std::string> events_on_disk() const {
        std::vector<std::string> messages;
        for (const auto& event : open()->events("a", 1, 100).events) {
            messages.push_back(event.message);
        }
        return messages;
    }

    test::TemporaryFolder folder_;
    std::shared_ptr<std::atomic<bool>> full_ = std::make_shared<std::atomic<bool>>(false);
    JobJournal journal_{std::make_unique<test::FullDisk>(open(), full_), 1000, [](const std::string&) {}};
    std::shared_ptr<AttemptRecord> record_ = make_attempt_record(journal_, {"a", 2});
};

TEST_F(JournalAttemptTest, KeepsTokenAndPlace) {
    EXPECT_TRUE(record_->set_token("hash"));
    EXPECT_EQ(on_disk().attempt_token, "hash");
    EXPECT_TRUE(record_->set_place("17"));
    EXPECT_EQ(on_disk().attempt_place, "17");
    EXPECT_EQ(record_->stored().place, "17");
    record_->begin_message(5);
    record_->end_message();
    record_->save();
    EXPECT_EQ(on_disk().attempt_received, 5U);
    EXPECT_TRUE(record_->set_token("other"));
    EXPECT_EQ(on_disk().attempt_place, "");
    EXPECT_EQ(on_disk().attempt_received, 0U);
}

TEST_F(JournalAttemptTest, StoresAMessageInOneTransaction) {
    record_->begin_message(3);
    journal_.append("a", message_record("one"));
    journal_.append("a", message_record("two"));
    EXPECT_THAT(events_on_disk(), IsEmpty());
    EXPECT_EQ(on_disk().attempt_received, 0U);
    EXPECT_EQ(record_->saved(), 0U);
    record_->end_message();
    EXPECT_THAT(events_on_disk(), ElementsAre("one", "two"));
    EXPECT_EQ(on_disk().attempt_received, 3U);
    EXPECT_EQ(record_->saved(), 3U);
}

TEST_F(JournalAttemptTest, AMessageWithoutAnEventWaitsForTheNext) {
    record_->begin_message(3);
    record_->end_message();
    EXPECT_EQ(record_->saved(), 0U);
    record_->begin_message(4);
    journal_.append("a", message_record("one"));
    record_->end_message();
    EXPECT_EQ(record_->saved(), 4U);
    record_->begin_message(5);
    record_->end_message();
    record_->save();
    EXPECT_EQ(record_->saved(), 5U);
    EXPECT_THAT(events_on_disk(), ElementsAre("one"));
}

TEST_F(JournalAttemptTest, SaysNothingIsSavedThatIsNot) {
    *full_ = true;
    EXPECT_FALSE(record_->set_token("hash"));
    record_->begin_message(3);
    journal_.append("a", message_record("one"));
    record_->end_message();
    record_->save();
    EXPECT_EQ(record_->saved(), 0U);
    *full_ = false;
    journal_.retry();
    EXPECT_EQ(record_->saved(), 3U);
    EXPECT_THAT(events_on_disk(), ElementsAre("one"));
}

TEST_F(JournalAttemptTest, AnEarlierAttemptChangesNothing) {
    const auto earlier = make_attempt_record(journal_, {"a", 1});
    EXPECT_FALSE(earlier->set_token("hash"));
    EXPECT_FALSE(earlier->set_place("17"));
    earlier->begin_message(9);
    earlier->end_message();
    earlier->save();
    EXPECT_EQ(earlier->saved(), 0U);
    journal_.append("a", message_record("one"));
    EXPECT_THAT(events_on_disk(), ElementsAre("one")) << "nothing holds it";
    EXPECT_EQ(on_disk().attempt_token, "");
    EXPECT_EQ(on_disk().attempt_received, 0U);
}

/// Fake workers that outlive the service.
class OutlivingLauncher final : public Launcher {
  public:
    OutlivingLauncher(test::Fleet& fleet, std::vector<std::string>& notes, std::shared_ptr<AttemptRecord>& record)
        : fleet_(fleet), notes_(notes), record_(record) {}

    std::unique_ptr<WorkerProcess> make(test::asio::any_io_executor executor, const Attempt& attempt) override {
        return worker("make ", std::move(executor), attempt);
    }
    std::unique_ptr<WorkerProcess> adopt(test::asio::any_io_executor executor, const Attempt& attempt) override {
        return worker("adopt ", std::move(executor), attempt);
    }
    bool outlives_service() const override { return true; }
    void all_adopted() override { notes_.emplace_back("all adopted"); }
    test::asio::awaitable<Result<std::vector<Node>>> nodes(std::vector<std::string> /*running*/) override {
        co_return std::vector<Node>();
    }

  private:
    std::unique_ptr<WorkerProcess> worker(const char* how, test::asio::any_io_executor executor,
                                          const Attempt& attempt) {
        notes_.push_back(how + std::to_string(attempt.number) + " " + attempt.record->stored().token_hash);
        record_ = attempt.record;
        return std::make_unique<test::FakeWorker>(std::move(executor), fleet_);
    }

    test::Fleet& fleet_;
    std::vector<std::string>& notes_;
    std::shared_ptr<AttemptRecord>& record_;
};

class AttemptsOfAManager : public ::testing::Test {
  protected:
    void open() {
        auto launcher = std::make_unique<OutlivingLauncher>(world_.fleet, notes_, record_);
        world_.manager =
            std::make_unique<JobManager>(world_.options_, world_.open_store(), std::move(launcher), world_.metrics);
        test::await(world_.manager->start());
    }
    /// The job's worker, with a token in the store.
    test::Control begin(const std::string& output) {
        world_.manager.reset();
        open();
        id_ = world_.submit(output);
        auto control = world_.fleet.next();
        auto setting = run_on(control->executor_, [this] { return record_->set_token("hash"); });
        EXPECT_TRUE(test::await(std::move(setting)));
        return control;
    }
    std::string token_on_disk() { return world_.open_store()->get(id_)->attempt_token; }

    test::World world_;
    std::vector<std::string> notes_;
    std::shared_ptr<AttemptRecord> record_;
    std::string id_;
};

TEST_F(AttemptsOfAManager, AreAdopted) {
    const auto before = begin("/out/a");
    world_.manager.reset();
    EXPECT_EQ(before->kills, 0);
    EXPECT_EQ(before->cancels, 0);
    notes_.clear();
    open();
    const auto control = world_.fleet.next();
    EXPECT_THAT(notes_, ElementsAre("adopt 1 hash", "all adopted"));
    const auto job = test::await(world_.manager->get(id_)).value();
    EXPECT_EQ(job.state, JobState::running);
    EXPECT_EQ(job.attempt, 1U);
    control->emit(FinishedEvent{}, control);
    control->end(control);
    test::wait_for_state(*world_.manager, id_, JobState::succeeded);
    EXPECT_EQ(token_on_disk(), "");
    EXPECT_THAT(world_.history(id_),
                ElementsAre("state: job queued", "state: job running", testing::_, "state: job succeeded"))
        << "the history does not show that the service was away";
}

TEST_F(AttemptsOfAManager, GoOnWhenTheServiceStops) {
    const auto control = begin("/out/a");
    test::await(world_.manager->stop());
    EXPECT_EQ(control->kills, 0);
    EXPECT_EQ(control->cancels, 0);
    EXPECT_EQ(test::await(world_.manager->get(id_))->state, JobState::running);
    EXPECT_EQ(token_on_disk(), "hash");
}

TEST_F(AttemptsOfAManager, AreStartedAgainByALauncherThatHasNoPlaces) {
    begin("/out/a");
    world_.manager.reset();
    world_.open();
    const auto control = world_.fleet.next();
    EXPECT_EQ(control->start.attempt, 2U);
    EXPECT_TRUE(control->start.resume);
    test::wait_for_state(*world_.manager, id_, JobState::running);
    EXPECT_EQ(token_on_disk(), "") << "otherwise a later service would adopt this worker";
}

}  // namespace
}  // namespace distilld
