#include "server/jobs/run_recorder.hpp"

#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/unit/server/jobs/fake_worker.hpp"

namespace distilld {
namespace {

using testing::ElementsAre;

class RunRecorderTest : public ::testing::Test {
  protected:
    RunRecorderTest() {
        StoredJob stored;
        stored.job.id = "job-a";
        journal_.create(stored);
        begin(1);
    }
    void begin(std::uint64_t attempt) {
        journal_.edit("job-a").job.attempt = attempt;
        journal_.edit("job-a").job.state = api::JobState::running;
        journal_.append("job-a", state_record(journal_.job("job-a")));
    }
    RunRecorder recorder(std::uint64_t attempt) {
        return RunRecorder({"job-a", attempt}, 16, std::chrono::milliseconds(0), journal_, metrics_);
    }
    static bool tell(RunRecorder& recorder, const WorkerEvent& event) {
        return recorder.handle(event, std::chrono::steady_clock::time_point());
    }
    std::size_t events() { return journal_.events("job-a", 0, 100).events.size(); }

    test::TemporaryFolder folder_;
    JobJournal journal_{open_sqlite_job_store(folder_ / "jobs.sqlite").value(), 100, [](const std::string&) {}};
    JobMetrics metrics_;
};

TEST_F(RunRecorderTest, EventsOfAReplacedWorkerChangeNothing) {
    RunRecorder first = recorder(1);
    EXPECT_TRUE(tell(first, StartedEvent()));
    EXPECT_TRUE(tell(first, test::progress_at(3, 2.5)));
    begin(2);
    const auto before = events();
    EXPECT_FALSE(first.is_current());
    for (const WorkerEvent& event :
         {WorkerEvent(test::progress_at(4, 1.5)), WorkerEvent(CheckpointEvent{4, "/step-4", 0.5, 1}),
          WorkerEvent(LogEvent{"info", "late"}), WorkerEvent(FailedEvent{"replaced", "by attempt 2"})}) {
        EXPECT_FALSE(tell(first, event));
    }
    EXPECT_EQ(events(), before);
    EXPECT_EQ(journal_.job("job-a").progress->step, 3U);
    EXPECT_EQ(first.outcome().reason.code, "");

    RunRecorder second = recorder(2);
    EXPECT_TRUE(tell(second, StartedEvent()));
    EXPECT_EQ(journal_.events("job-a", before, 10).events.at(0).data.at("attempt").to_number<int>(), 2);
    EXPECT_FALSE(recorder(3).is_current());
    EXPECT_FALSE(RunRecorder({"job-b", 2}, 16, {}, journal_, metrics_).is_current());
}

/// The recorder of a service that was killed, or of an attempt that died, stored the last step; whoever hears of the
/// end is another one.
TEST_F(RunRecorderTest, TheLastStepIsStoredOnce) {
    const auto steps = [this] {
        std::vector<std::uint64_t> all;
        for (const auto& event : journal_.events("job-a", 0, 1000).events) {
            if (event.type == api::EventType::metrics) {
                all.push_back(event.data.at("step").to_number<std::uint64_t>());
            }
        }
        return all;
    };
    const auto finish = [this](std::uint64_t step) {
        RunRecorder last = recorder(1);
        tell(last, FinishedEvent{test::progress_at(step, 2.5), "", {}, ""});
    };
    finish(3);
    EXPECT_THAT(steps(), ElementsAre(3));
    RunRecorder first = recorder(1);
    tell(first, test::progress_at(4, 2.5));
    for (int message = 0; message < 150; ++message) {  // more than are read at once
        tell(first, LogEvent{"info", "said"});
    }
    finish(4);
    EXPECT_THAT(steps(), ElementsAre(3, 4));
    journal_.hold("job-a");  // the same before it is written
    tell(first, test::progress_at(5, 2.5));
    finish(5);
    finish(6);
    journal_.release("job-a");
    EXPECT_THAT(steps(), ElementsAre(3, 4, 5, 6));
}

/// Each start has the next number, also after a restart of the service; its worker and the job's document have it too.
TEST(JobAttempts, AreCounted) {
    test::World world;
    const std::string id = world.submit("/out");
    for (const std::uint64_t attempt : {1, 2}) {
        const auto worker = world.fleet.next();
        EXPECT_EQ(worker->start.attempt, attempt);
        worker->emit(StartedEvent(), worker);
        const auto job = test::wait_for_state(*world.manager, id, api::JobState::running);
        EXPECT_EQ(job.attempt, attempt);
        if (attempt == 1) {
            worker->emit(FailedEvent{kWorkerKilled, "killed"}, worker);
            worker->end(worker);
        }
    }
    world.manager.reset();
    world.open();
    EXPECT_EQ(world.fleet.next()->start.attempt, 3U);
}

}  // namespace
}  // namespace distilld
