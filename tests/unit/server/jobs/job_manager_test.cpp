#include "server/jobs/job_manager.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <mutex>

#include "tests/unit/server/jobs/fake_worker.hpp"
#include "tests/unit/server/jobs/full_disk.hpp"
#include "tests/unit/server/support/exposition.hpp"

namespace distilld {
namespace {

using api::JobState;
using test::await;
using test::progress_at;
using test::spec_text;
using test::wait_for_state;
using test::World;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

JobManagerOptions thin() {
    JobManagerOptions options;
    options.metrics_interval = std::chrono::hours(1);
    return options;
}

void finish(const test::Control& worker, ProgressEvent last = progress_at(10, 1.0)) {
    FinishedEvent event;
    event.last = std::move(last);
    event.output = "/out";
    event.eval_loss = 2.5;
    event.weights_sha256 = "abc";
    event.exported_eval_loss = 2.75;
    worker->emit(event, worker);
    worker->end(worker);
}

TEST(JobManager, RunsAJobFromQueueToSuccess) {
    World world(thin());
    const auto outcome = await(world.manager->submit({spec_text("out"), "", false}));
    ASSERT_EQ(outcome.kind, JobVerdict::created);
    EXPECT_EQ(outcome.job.state, JobState::queued);
    EXPECT_EQ(outcome.job.queue_position, 1U);
    const auto id = outcome.job.id;
    const auto worker = world.fleet.next();
    // The worker gets the whole spec, with absolute paths.
    const auto spec = api::parse_job_spec(worker->start.spec_json);
    ASSERT_TRUE(spec);
    EXPECT_EQ(spec->output, (world.folder.path() / "out").string());
    EXPECT_EQ(spec->dataset.train, std::vector{(world.folder.path() / "t.jsonl").string()});
    EXPECT_FALSE(worker->start.resume);
    EXPECT_EQ(await(world.manager->get(id))->state, JobState::running);

    StartedEvent started;
    started.total_steps = 10;
    started.batch_size = 2;
    started.dtype = "bf16";
    worker->emit(started, worker);
    for (std::uint64_t step = 1; step <= 9; ++step) {
        worker->emit(progress_at(step, 10.0 - static_cast<double>(step)), worker);
    }
    worker->emit(CheckpointEvent{5, "/out/checkpoints/5", 0.5}, worker);
    worker->emit(EvaluationEvent{9, 3.5, 100, 0.5, 0.75, 0.875}, worker);
    worker->emit(LogEvent{"warn", "careful"}, worker);
    finish(worker);
    const auto job = wait_for_state(*world.manager, id, JobState::succeeded);
    EXPECT_EQ(job.progress->step, 10U);
    EXPECT_EQ(job.eval_loss, 2.5);
    EXPECT_EQ(job.eval_kl, 0.5);
    EXPECT_EQ(job.eval_top1_agreement, 0.75);
    EXPECT_EQ(job.eval_acceptance_rate, 0.875);
    EXPECT_EQ(job.dtype, "bf16");
    EXPECT_EQ(job.weights_sha256, "abc");
    EXPECT_EQ(job.exported_eval_loss, 2.75);
    ASSERT_EQ(job.checkpoints.size(), 1U);
    EXPECT_EQ(job.checkpoints[0].step, 5U);
    EXPECT_FALSE(job.started_at.empty());
    EXPECT_FALSE(job.finished_at.empty());
    EXPECT_FALSE(job.queue_position);
    // Of ten metrics only the first is stored within the interval, and the last one always.
    EXPECT_THAT(world.history(id),
                ElementsAre("state: job queued", "state: job running", "message: training started",
                            "metrics: step 1 of 10, loss 9 nats/token",
                            "checkpoint: checkpoint of step 5 in /out/checkpoints/5",
                            "evaluation: step 9, held-out cross entropy 3.5 nats/token", "message: careful",
                            "metrics: step 10 of 10, loss 1 nats/token", "state: job succeeded"));
}

TEST(JobManager, LiveJobShowsTheNewestProgress) {
    World world(thin());
    const auto id = world.submit("out");
    const auto worker = world.fleet.next();
    for (std::uint64_t step = 1; step <= 5; ++step) {
        worker->emit(progress_at(step, 1), worker);
    }
    worker->emit(LogEvent{"info", "marker"}, worker);
    std::uint64_t after = 0;
    std::string last;
    while (last != "marker") {
        const auto batch = await(world.manager->wait_events(id, after, 1));
        ASSERT_EQ(batch.events.size(), 1U);
        after = batch.events[0].sequence;
        last = batch.events[0].message;
    }
    EXPECT_EQ(await(world.manager->get(id))->progress->step, 5U);
    EXPECT_EQ(await(world.manager->list({})).jobs.at(0).progress->step, 5U);
    finish(worker);
    wait_for_state(*world.manager, id, JobState::succeeded);
}

TEST(JobManager, RefusesBadSpecsAndSharedOutputs) {
    World world;
    const auto bad = await(world.manager->submit({R"({"name":1})", "", false}));
    EXPECT_EQ(bad.kind, JobVerdict::invalid_spec);
    EXPECT_GE(bad.violations.violations.size(), 5U);

    const auto first = world.submit("out");
    std::filesystem::create_directory(world.folder.path() / "out");
    std::filesystem::create_directory_symlink(world.folder.path() / "out", world.folder.path() / "link");
    for (const auto* same : {"out", "./out/", "x/../out", "link"}) {
        const auto second = await(world.manager->submit({spec_text(same), "", false}));
        ASSERT_EQ(second.kind, JobVerdict::output_in_use) << same;
        EXPECT_EQ(second.violations.violations[0].pointer, "/output");
        EXPECT_THAT(second.violations.violations[0].detail, HasSubstr(first));
    }
    finish(world.fleet.next());
    wait_for_state(*world.manager, first, JobState::succeeded);
    EXPECT_NO_THROW(world.submit("out"));
}

TEST(JobManager, DryRunStoresNothing) {
    World world;
    EXPECT_EQ(await(world.manager->submit({spec_text("out"), "key", true})).kind, JobVerdict::invalid_spec)
        << "there is no model folder";
    std::filesystem::create_directory(world.folder.path() / "m");
    std::ofstream(world.folder.path() / "m/config.json") << "{}";
    std::ofstream(world.folder.path() / "m/model.safetensors") << "";
    const auto outcome = await(world.manager->submit({spec_text("out"), "key", true}));
    EXPECT_EQ(outcome.kind, JobVerdict::valid);
    EXPECT_TRUE(api::parse_job_spec(outcome.job.resolved_spec_json));
    EXPECT_TRUE(await(world.manager->list({})).jobs.empty());
}

TEST(JobManager, KeepsWhoseAJobIsAndWhatIsSaidOfIt) {
    World world;
    SubmitRequest request{spec_text("out"), "", false};
    request.owner = http::Caller{"ada", http::Role::submit, "key-a"};
    request.metadata = {{"team", "red"}, {"empty", ""}};
    const auto id = await(world.manager->submit(request)).job.id;
    const auto job = await(world.manager->get(id));
    EXPECT_EQ(job->owner, "ada");
    EXPECT_EQ(job->metadata, request.metadata);
    EXPECT_EQ(job->kind, api::JobKind::train);
    EXPECT_EQ(await(world.manager->list({})).jobs.at(0).metadata, request.metadata);
}

TEST(JobManager, RunsAsManyJobsAsItHasSlots) {
    auto options = thin();
    options.slots = 2;
    World world(options);
    const auto a = world.submit("a");
    const auto b = world.submit("b");
    const auto c = world.submit("c");
    const auto d = world.submit("d");
    const auto worker_a = world.fleet.next();
    const auto worker_b = world.fleet.next();
    EXPECT_EQ(await(world.manager->get(c))->queue_position, 1U);
    EXPECT_EQ(await(world.manager->get(d))->queue_position, 2U);
    EXPECT_EQ(world.fleet.count(), 2U);
    finish(worker_b);
    const auto worker_c = world.fleet.next();
    EXPECT_EQ(api::parse_job_spec(worker_c->start.spec_json)->output, (world.folder.path() / "c").string());
    EXPECT_EQ(await(world.manager->get(d))->queue_position, 1U);
    EXPECT_EQ(await(world.manager->get(a))->state, JobState::running);
    EXPECT_EQ(await(world.manager->get(b))->state, JobState::succeeded);
}

TEST(JobManager, CancelsQueuedJobsAtOnce) {
    World world;
    const auto running = world.submit("a");
    const auto queued = world.submit("b");
    world.fleet.next();
    const auto outcome = await(world.manager->command(queued, job_verb("cancel")));
    EXPECT_EQ(outcome.kind, JobVerdict::accepted);
    EXPECT_EQ(outcome.job.state, JobState::cancelled);
    EXPECT_EQ(await(world.manager->command(queued, job_verb("cancel"))).kind, JobVerdict::terminal);
    EXPECT_EQ(await(world.manager->command("nobody", job_verb("cancel"))).kind, JobVerdict::not_found);
    EXPECT_EQ(await(world.manager->get(running))->state, JobState::running);
}

TEST(JobManager, CancelsRunningJobsAfterTheirCheckpoint) {
    World world;
    world.fleet.obey = false;
    const auto id = world.submit("a");
    const auto worker = world.fleet.next();
    const auto outcome = await(world.manager->command(id, job_verb("cancel")));
    EXPECT_EQ(outcome.kind, JobVerdict::accepted);
    EXPECT_EQ(outcome.job.state, JobState::running);
    EXPECT_TRUE(outcome.job.cancel_requested);
    EXPECT_EQ(await(world.manager->command(id, job_verb("cancel"))).kind, JobVerdict::accepted);
    worker->emit(CheckpointEvent{4, "/c/4", 0.1}, worker);
    worker->emit(CancelledEvent{4, "/c/4"}, worker);
    worker->end(worker);
    const auto job = wait_for_state(*world.manager, id, JobState::cancelled);
    EXPECT_EQ(job.status_reason->code, "cancelled_by_user");
    EXPECT_EQ(worker->cancels, 1);
    EXPECT_EQ(worker->kills, 0);
}

TEST(JobManager, KillsAWorkerThatDoesNotObey) {
    JobManagerOptions options;
    options.cancel_grace = std::chrono::seconds(0);
    World world(options);
    world.fleet.obey = false;
    const auto id = world.submit("a");
    const auto worker = world.fleet.next();
    await(world.manager->command(id, job_verb("cancel")));
    const auto job = wait_for_state(*world.manager, id, JobState::cancelled);
    EXPECT_EQ(job.status_reason->code, "worker_killed");
    EXPECT_EQ(worker->kills, 1);
}

TEST(JobManager, KillsWorkersThatHaveNotStoppedByTheStopLimit) {
    JobManagerOptions options;
    options.slots = 2;
    options.stop_limit = std::chrono::milliseconds(50);
    World world(options);
    world.fleet.obey = false;
    const auto running = world.submit("a");
    const auto first = world.fleet.next();
    const auto cancelled = world.submit("b");
    const auto second = world.fleet.next();
    await(world.manager->command(cancelled, job_verb("cancel")));  // it would have two minutes
    await(world.manager->stop());
    EXPECT_GE(first->kills, 1);
    EXPECT_GE(second->kills, 1);
    EXPECT_EQ(await(world.manager->get(running))->state, JobState::queued);
    EXPECT_EQ(await(world.manager->get(running))->status_reason->code, "service_stopped");
    EXPECT_EQ(await(world.manager->get(cancelled))->state, JobState::cancelled);
    await(world.manager->answer());
}

TEST(JobManager, PutsRunningJobsBackWhenItStopsAndResumesThem) {
    World world;
    const auto running = world.submit("a");
    const auto queued = world.submit("b");
    const auto worker = world.fleet.next();
    await(world.manager->stop());
    EXPECT_FALSE(await(world.manager->ready()));
    EXPECT_EQ(worker->cancels, 1);
    EXPECT_EQ(await(world.manager->get(running))->state, JobState::queued);
    EXPECT_EQ(await(world.manager->get(running))->status_reason->code, "service_stopped");
    EXPECT_EQ(await(world.manager->submit({spec_text("c"), "", false})).kind, JobVerdict::stopping);
    EXPECT_EQ(world.fleet.count(), 1U);
    world.manager.reset();

    world.open();
    const auto again = world.fleet.next();
    EXPECT_TRUE(again->start.resume);
    EXPECT_EQ(again->start.spec_json, worker->start.spec_json);
    finish(again);
    wait_for_state(*world.manager, running, JobState::succeeded);
    const auto second = world.fleet.next();
    EXPECT_FALSE(second->start.resume);
    EXPECT_EQ(await(world.manager->get(queued))->state, JobState::running);
}

TEST(JobManager, GoesOnAfterTheServiceWasKilled) {
    World world;
    const auto running = world.submit("a");
    const auto cancelled = [&] {
        world.fleet.next();
        return running;
    }();
    // Destroyed without stop(): as after kill -9, the store still says "running".
    world.manager.reset();
    EXPECT_EQ(world.open_store()->get(cancelled)->job.state, JobState::running);
    world.open();
    EXPECT_TRUE(world.fleet.next()->start.resume);
    EXPECT_THAT(world.history(running),
                ElementsAre("state: job queued", "state: job running",
                            HasSubstr("state: job queued: the service ended while the job ran"), "state: job running"));
    // The folder is still taken.
    EXPECT_EQ(await(world.manager->submit({spec_text("a"), "", false})).kind, JobVerdict::output_in_use);
}

TEST(JobManager, EndsACancelledJobAfterARestart) {
    World world;
    world.fleet.obey = false;
    const auto id = world.submit("a");
    world.fleet.next();
    await(world.manager->command(id, job_verb("cancel")));
    world.manager.reset();
    world.open();
    EXPECT_EQ(await(world.manager->get(id))->state, JobState::cancelled);
    EXPECT_EQ(world.fleet.count(), 1U);
}

TEST(JobManager, AnswersTheSameKeyWithTheSameJob) {
    World world;
    const auto first = await(world.manager->submit({spec_text("a"), "k", false}));
    ASSERT_EQ(first.kind, JobVerdict::created);
    const auto second = await(world.manager->submit({spec_text("a"), "k", false}));
    EXPECT_EQ(second.kind, JobVerdict::existing);
    EXPECT_EQ(second.job.id, first.job.id);
    EXPECT_EQ(await(world.manager->submit({spec_text("b"), "k", false})).kind, JobVerdict::key_reused);
    EXPECT_EQ(await(world.manager->list({})).jobs.size(), 1U);
}

TEST(JobManager, WaitsForEventsAndEndsWithTheJob) {
    auto options = thin();
    options.heartbeat = std::chrono::hours(1);  // a reader that is not woken is late
    boost::asio::thread_pool reader(1);
    World world(options);
    const auto id = world.submit("a");
    const auto worker = world.fleet.next();
    auto batch = await(world.manager->wait_events(id, 0, 100));
    ASSERT_EQ(batch.events.size(), 2U);
    EXPECT_FALSE(batch.ended);
    auto waiting = boost::asio::co_spawn(reader, world.manager->wait_events(id, 2, 100), boost::asio::use_future);
    EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
    worker->emit(LogEvent{"info", "hello"}, worker);
    ASSERT_EQ(waiting.wait_for(std::chrono::seconds(30)), std::future_status::ready);
    batch = waiting.get();
    ASSERT_EQ(batch.events.size(), 1U);
    EXPECT_EQ(batch.events[0].message, "hello");
    finish(worker);
    wait_for_state(*world.manager, id, JobState::succeeded);
    batch = await(world.manager->wait_events(id, 3, 100));
    EXPECT_EQ(batch.events.size(), 2U);
    EXPECT_TRUE(batch.ended);
    ASSERT_TRUE(batch.job);
    EXPECT_EQ(batch.job->state, JobState::succeeded);
    EXPECT_FALSE(await(world.manager->wait_events("nobody", 0, 100)).found);
}

TEST(JobManager, ReadersGiveUpAfterTheHeartbeat) {
    JobManagerOptions options;
    options.heartbeat = std::chrono::milliseconds(1);
    World world(options);
    const auto id = world.submit("a");
    world.fleet.next();
    const auto batch = await(world.manager->wait_events(id, 1000, 100));
    EXPECT_TRUE(batch.events.empty());
    EXPECT_FALSE(batch.ended);
}

TEST(JobManager, OutlivesAFullDisk) {
    JobManagerOptions options;
    options.heartbeat = std::chrono::milliseconds(5);
    options.store_retry = std::chrono::milliseconds(5);
    World world(options);
    await(world.manager->stop());
    world.manager.reset();
    const auto full = std::make_shared<std::atomic<bool>>(false);
    world.open(std::make_unique<test::FullDisk>(world.open_store(), full), world.fleet.factory());
    const auto id = world.submit("a");
    const auto worker = world.fleet.next();
    EXPECT_FALSE(world.manager->store_trouble());
    *full = true;
    EXPECT_THROW(await(world.manager->submit({spec_text("b"), "", false})), ErrorException);
    EXPECT_THAT(world.manager->store_trouble()->message, HasSubstr("database or disk is full"));
    EXPECT_EQ(test::sample(world.metrics->text(), "distilld_store_writable"), 0.0);
    finish(worker);
    // The disk does not know, but who asks is told.
    EXPECT_EQ(wait_for_state(*world.manager, id, JobState::succeeded).weights_sha256, "abc");
    EXPECT_EQ(world.open_store()->get(id)->job.state, JobState::running);
    EXPECT_FALSE(await(world.manager->wait_events(id, 100, 1)).ended) << "its last events are not there yet";
    *full = false;
    while (world.manager->store_trouble()) {
        await(world.manager->wait_events(id, 100, 1));
    }
    EXPECT_THAT(world.history(id), ElementsAre("state: job queued", "state: job running",
                                               "metrics: step 10 of 10, loss 1 nats/token", "state: job succeeded"));
    EXPECT_TRUE(await(world.manager->wait_events(id, 100, 1)).ended);
    const auto next = world.submit("a");
    finish(world.fleet.next());
    wait_for_state(*world.manager, next, JobState::succeeded);
}

/// A store whose next write waits until it is let go.
class SlowDisk final : public test::FullDisk {
  public:
    SlowDisk(std::unique_ptr<JobStore> inner, std::shared_ptr<std::mutex> writing)
        : FullDisk(std::move(inner), std::make_shared<std::atomic<bool>>(false)), writing_(std::move(writing)) {}
    std::uint64_t append_events(std::string_view id, std::span<const api::JobEvent> events,
                                const JobChange& change) override {
        const std::lock_guard lock(*writing_);
        return FullDisk::append_events(id, events, change);
    }

  private:
    std::shared_ptr<std::mutex> writing_;
};

TEST(JobManager, WhoAsksDoesNotWaitForTheDisk) {
    World world(thin());
    await(world.manager->stop());
    world.manager.reset();
    const auto writing = std::make_shared<std::mutex>();
    world.open(std::make_unique<SlowDisk>(world.open_store(), writing), world.fleet.factory());
    const auto running = world.submit("a");
    const auto queued = world.submit("b");
    const auto worker = world.fleet.next();
    await(world.manager->command("nobody", job_verb("cancel")));  // the manager's thread has done what was to do
    std::unique_lock disk(*writing);
    worker->emit(progress_at(4, 2.5), worker);
    // The manager's thread is with the disk from here on, or will be. await() would throw.
    while (await(world.manager->get(running))->progress.value_or(ProgressEvent{}).step != 4) {
    }
    EXPECT_EQ(await(world.manager->list({})).jobs.size(), 2U);
    EXPECT_EQ(await(world.manager->get(queued))->queue_position, 1U);
    EXPECT_EQ(await(world.manager->events(running, 0, 10)).events.size(), 2U);
    EXPECT_FALSE(await(world.manager->get("nobody")));
    EXPECT_FALSE(world.manager->store_trouble());
    disk.unlock();
    finish(worker);
    wait_for_state(*world.manager, running, JobState::succeeded);
}

/// A disk that takes a new job and nothing after it, as one before a power cut.
class TakesNoEvents final : public test::FullDisk {
  public:
    using FullDisk::FullDisk;
    std::uint64_t append_events(std::string_view, std::span<const api::JobEvent>, const JobChange&) override {
        throw ErrorException(io_error("jobs.sqlite: the power is gone"));
    }
};

TEST(JobManager, ASubmissionIsOneTransaction) {
    test::World world(JobManagerOptions{});
    world.manager.reset();
    const auto never = std::make_shared<std::atomic<bool>>(false);
    world.open(std::make_unique<TakesNoEvents>(world.open_store(), never), world.fleet.factory());
    const auto id = world.submit("/out/a");
    world.manager.reset();
    const auto events = world.open_store()->events(id, 0, 10).events;
    ASSERT_EQ(events.size(), 1U);
    EXPECT_EQ(events[0].message, "job queued");
    EXPECT_NE(events[0].created_at, "");
}

}  // namespace
}  // namespace distilld
