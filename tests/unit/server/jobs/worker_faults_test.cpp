#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "server/jobs/job_manager.hpp"
#include "tests/unit/server/jobs/fake_worker.hpp"
#include "tests/unit/server/support/exposition.hpp"

namespace distilld {
namespace {

using api::JobState;
using test::await;
using test::Control;
using test::progress_at;
using test::wait_for_state;
using test::World;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// As by default, a thousand times as fast.
JobManagerOptions quick() {
    JobManagerOptions options;
    options.restarts.min_pause = std::chrono::milliseconds(1);
    options.restarts.max_pause = std::chrono::milliseconds(30);
    return options;
}

void finish(const Control& worker, ProgressEvent last = progress_at(10, 1.0)) {
    FinishedEvent event;
    event.last = std::move(last);
    event.weights_sha256 = "abc";
    worker->emit(event, worker);
    worker->end(worker);
}

/// As the supervisor tells of a child that the kernel killed.
void die(const Control& worker) {
    worker->emit(FailedEvent{kWorkerKilled, "the worker was killed by signal 9 (Killed) before it had finished"},
                 worker);
    worker->end(worker, WorkerExit{137, ""});
}

void begin_at(const Control& worker, std::uint64_t first_step) {
    StartedEvent started;
    started.first_step = first_step;
    started.total_steps = 10;
    worker->emit(started, worker);
}

double restarts(World& world) {
    return test::sample(world.metrics->text(), "distilld_worker_restarts_total");
}

TEST(WorkerFaults, AWorkerThatDiesIsStartedAgainFromItsNewestCheckpoint) {
    World world(quick());
    const auto id = world.submit("a");
    const auto first = world.fleet.next();
    EXPECT_FALSE(first->start.resume);
    begin_at(first, 0);
    first->emit(progress_at(5, 2.0), first);
    die(first);
    const auto second = world.fleet.next();
    EXPECT_TRUE(second->start.resume);
    auto job = *await(world.manager->get(id));
    EXPECT_EQ(job.status_reason->code, "worker_restarting") << "until the worker has begun";
    EXPECT_THAT(job.status_reason->message, HasSubstr("killed by signal 9 (Killed)"));
    EXPECT_THAT(job.status_reason->message, HasSubstr("restart 1 of 3"));
    EXPECT_THAT(job.status_reason->since, HasSubstr("T"));
    EXPECT_EQ(job.progress->step, 5U) << "what was known of it";
    EXPECT_EQ(test::sample(world.metrics->text(), "distilld_jobs_waiting{reason=\"worker_restarting\"}"), 1.0);
    begin_at(second, 4);
    finish(second);
    job = wait_for_state(*world.manager, id, JobState::succeeded);
    EXPECT_FALSE(job.status_reason);
    EXPECT_EQ(restarts(world), 1.0);
    EXPECT_THAT(world.history(id),
                ElementsAre("state: job queued", "state: job running", "message: training started",
                            "metrics: step 5 of 10, loss 2 nats/token",
                            "state: job queued: the worker was killed by signal 9 (Killed) before it had finished; "
                            "restart 1 of 3 from the newest checkpoint in 1 ms",
                            "state: job running", "message: training resumed at step 4",
                            "metrics: step 10 of 10, loss 1 nats/token", "state: job succeeded"));
}

TEST(WorkerFaults, AJobFailsWithTheLastWordsOfItsWorkerWhenItGetsNoFurther) {
    World world(quick());
    const auto a = world.submit("a");
    const auto b = world.submit("b");
    for (int run = 0; run < 4; ++run) {
        const auto worker = world.fleet.next();
        worker->end(worker, WorkerExit{139, ""});  // without a word
    }
    const auto failed = wait_for_state(*world.manager, a, JobState::failed);
    EXPECT_EQ(failed.status_reason->code, "worker_killed");
    EXPECT_THAT(failed.status_reason->message, HasSubstr("died 4 times in a row without progress"));
    EXPECT_EQ(restarts(world), 3.0);
    finish(world.fleet.next());
    wait_for_state(*world.manager, b, JobState::succeeded);
    EXPECT_EQ(test::sample(world.metrics->text(), "distilld_queue_wait_seconds_count"), 2.0)
        << "once for each job: who waits for a restart does not wait in the queue";
}

TEST(WorkerFaults, WhatAWorkerSaysOfItsFailureIsTheEnd) {
    World world(quick());
    const auto id = world.submit("a");
    const auto worker = world.fleet.next();
    worker->emit(FailedEvent{"teacher", "http://t: 500 for ever"}, worker);
    worker->end(worker, WorkerExit{1, ""});
    EXPECT_EQ(wait_for_state(*world.manager, id, JobState::failed).status_reason->code, "teacher");
    EXPECT_EQ(restarts(world), 0.0);
}

void begin_with(const Control& worker, std::uint32_t batch_size, std::uint32_t micro_batches) {
    StartedEvent started;
    started.total_steps = 10;
    started.batch_size = batch_size;
    started.micro_batches = micro_batches;
    worker->emit(started, worker);
}

void run_out_of_memory(const Control& worker) {
    worker->emit(FailedEvent{kWorkerOutOfMemory, "no room"}, worker);
    worker->end(worker, WorkerExit{1, ""});
}

TEST(WorkerFaults, AWorkerWithoutMemoryIsStartedAgainWithHalfTheMicroBatch) {
    World world(quick());
    const auto id = world.submit("a");
    const auto first = world.fleet.next();
    begin_with(first, 2, 1);
    run_out_of_memory(first);
    const auto second = world.fleet.next();
    EXPECT_TRUE(second->start.resume);
    const auto spec = api::parse_job_spec(second->start.spec_json);
    EXPECT_EQ(spec->training.batch_size, 1U);
    EXPECT_EQ(spec->training.micro_batches, 2U);
    auto job = *await(world.manager->get(id));
    EXPECT_EQ(job.status_reason->code, "out_of_memory_restarted");
    EXPECT_THAT(job.status_reason->message, HasSubstr("no room; out-of-memory restart 1 of 3"));
    EXPECT_EQ(test::sample(world.metrics->text(), "distilld_worker_oom_restarts_total"), 1.0);
    EXPECT_EQ(restarts(world), 0.0);
    begin_with(second, 1, 2);
    // It dies of something else: the smaller micro-batches stay.
    die(second);
    const auto third = world.fleet.next();
    EXPECT_EQ(third->start.spec_json, second->start.spec_json);
    // As they do when the service is started again.
    world.manager.reset();
    world.open();
    const auto fourth = world.fleet.next();
    EXPECT_EQ(fourth->start.spec_json, second->start.spec_json);
    begin_with(fourth, 1, 2);
    run_out_of_memory(fourth);
    job = wait_for_state(*world.manager, id, JobState::failed);
    EXPECT_EQ(job.status_reason->code, "out_of_memory");
    EXPECT_THAT(job.status_reason->message, HasSubstr("batch_size 1 and micro_batches 2 cannot be halved"));
    EXPECT_EQ(api::parse_job_spec(job.resolved_spec_json)->training.batch_size, 1U) << "what was in force";
    EXPECT_EQ(api::parse_job_spec(job.spec_json)->training.batch_size, 2U) << "what was submitted";
}

/// A program that is missing `missing` times.
WorkerFactory missing_program(test::Fleet& fleet, std::shared_ptr<std::atomic<int>> missing) {
    return [factory = fleet.factory(), missing](boost::asio::any_io_executor executor, const Slot& slot) {
        if (--*missing >= 0) {
            throw std::runtime_error("cannot start distilld-worker: Too many open files");
        }
        return factory(std::move(executor), slot);
    };
}

TEST(WorkerFaults, NoJobFailsBecauseTheProgramIsMissing) {
    World world(quick());
    await(world.manager->stop());
    world.manager.reset();
    const auto missing = std::make_shared<std::atomic<int>>(8);
    world.open(world.open_store(), missing_program(world.fleet, missing));
    std::vector<std::string> ids;
    for (int number = 0; number < 20; ++number) {
        ids.push_back(world.submit("out" + std::to_string(number)));
    }
    for (std::size_t number = 0; number < ids.size(); ++number) {
        const auto worker = world.fleet.next();
        EXPECT_EQ(api::parse_job_spec(worker->start.spec_json)->output,
                  (world.folder.path() / ("out" + std::to_string(number))).string())
            << "in the order in which they were submitted";
        begin_at(worker, 0);
        finish(worker);
        EXPECT_FALSE(wait_for_state(*world.manager, ids[number], JobState::succeeded).status_reason);
    }
    EXPECT_EQ(restarts(world), 0.0);
    const auto history = world.history(ids[0]);
    EXPECT_EQ(
        std::count_if(history.begin(), history.end(),
                      [](const auto& line) { return line.find("Too many open files; tried again in") != line.npos; }),
        8);
}

TEST(WorkerFaults, AWorkerThatEndsBeforeItWasToldItsJobIsTriedAgainForEver) {
    World world(quick());
    const auto id = world.submit("a");
    for (int number = 0; number < 3; ++number) {
        const auto worker = world.fleet.next();
        worker->end(worker, io_error("cannot start distilld-worker: No such file or directory"));
    }
    for (int number = 0; number < 3; ++number) {
        const auto worker = world.fleet.next();
        worker->emit(FailedEvent{kWorkerNotStarted, "the worker exited with code 127"}, worker);
        worker->end(worker);
    }
    const auto last = world.fleet.next();
    const auto reason = await(world.manager->get(id))->status_reason;
    EXPECT_EQ(reason->code, "worker_not_started");
    EXPECT_EQ(reason->message, "the worker exited with code 127; tried again in 30 ms");
    finish(last);
    wait_for_state(*world.manager, id, JobState::succeeded);
}

TEST(WorkerFaults, AJobThatWentOnFromItsEndKeepsItsStepsAndItsLoss) {
    World world(quick());
    const auto id = world.submit("a");
    const auto first = world.fleet.next();
    begin_at(first, 0);
    auto nearly = progress_at(9, 1.5);
    nearly.fetch.requests = 7;
    nearly.durations.steps.observe(0.5);
    first->emit(nearly, first);
    first->emit(CheckpointEvent{10, "/c/10", 0.1}, first);
    die(first);
    const auto second = world.fleet.next();
    begin_at(second, 10);
    finish(second, ProgressEvent{});
    const auto job = wait_for_state(*world.manager, id, JobState::succeeded);
    EXPECT_EQ(job.progress->step, 10U);
    EXPECT_EQ(job.progress->total_steps, 10U);
    EXPECT_EQ(job.progress->loss, 1.5);
    EXPECT_THAT(world.history(id).at(world.history(id).size() - 2), "metrics: step 10 of 10, loss 1.5 nats/token");
    const auto metrics = world.metrics->text();
    EXPECT_EQ(test::sample(metrics, "distilld_teacher_requests_total"), 7.0) << "of the first run, once";
    EXPECT_EQ(test::sample(metrics, "distilld_step_duration_seconds_count{job_id=\"" + id + "\"}"), 1.0);
    EXPECT_EQ(test::sample(metrics, "distilld_job_loss{job_id=\"" + id + "\"}"), 1.5);
    EXPECT_EQ(test::sample(metrics, "distilld_job_step{job_id=\"" + id + "\"}"), 10.0);
}

/// Many jobs, workers that die at random, a service that is killed at random: every job ends well, once, with all of
/// its steps, and its events have no hole.
TEST(WorkerFaults, AStormOfKillsLosesNothing) {
    for (std::uint32_t seed = 0; seed < 3; ++seed) {
        SCOPED_TRACE(seed);
        std::mt19937 random(seed);
        const auto pick = [&random](int bound) { return std::uniform_int_distribution(0, bound - 1)(random); };
        World world(quick());
        std::map<std::string, std::uint64_t> checkpoints;  // by output
        std::vector<std::string> ids;
        for (int number = 0; number < 8; ++number) {
            ids.push_back(world.submit("out" + std::to_string(number)));
        }
        std::size_t finished = 0;
        int kills = 0;
        while (finished < ids.size()) {
            const auto worker = world.fleet.next();
            auto& saved = checkpoints[api::parse_job_spec(worker->start.spec_json)->output];
            EXPECT_EQ(worker->start.resume || saved == 0, true);
            begin_at(worker, saved);
            const auto end = std::min<std::uint64_t>(10, saved + 1 + static_cast<std::uint64_t>(pick(4)));
            for (auto step = saved + 1; step <= end; ++step) {
                worker->emit(progress_at(step, 20.0 - static_cast<double>(step)), worker);
            }
            worker->emit(CheckpointEvent{end, "/c/" + std::to_string(end), 0.1}, worker);
            const bool resumed_at_end = saved == 10;
            saved = end;
            if (end == 10 && pick(2) == 0) {
                finish(worker, resumed_at_end ? ProgressEvent{} : progress_at(10, 10.0));
                wait_for_state(*world.manager, ids[finished], JobState::succeeded);
                ++finished;
            } else if (pick(3) == 0) {
                await(world.manager->get(ids[0]));  // what was said above has been heard
                world.manager.reset();              // as kill -9
                world.open();
                ++kills;
            } else {
                die(worker);
                ++kills;
            }
        }
        EXPECT_GT(kills, 10);
        for (const auto& id : ids) {
            const auto job = await(world.manager->get(id));
            EXPECT_EQ(job->state, JobState::succeeded);
            EXPECT_EQ(job->progress->step, 10U) << id;
            EXPECT_EQ(job->progress->total_steps, 10U) << id;
            EXPECT_GT(job->progress->loss, 0.0) << id;
            const auto events = await(world.manager->events(id, 0, 1000)).events;
            for (std::size_t index = 0; index < events.size(); ++index) {
                EXPECT_EQ(events[index].sequence, index + 1) << id;
            }
            EXPECT_EQ(events.back().message, "job succeeded");
        }
        EXPECT_EQ(await(world.manager->list({})).jobs.size(), ids.size());
    }
}

}  // namespace
}  // namespace distilld
