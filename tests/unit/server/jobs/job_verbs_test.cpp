#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <memory>

#include "server/jobs/job_manager.hpp"
#include "tests/unit/server/jobs/fake_worker.hpp"
#include "tests/unit/server/jobs/full_disk.hpp"

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
using ::testing::IsEmpty;
using Kind = JobVerdict;
using Pairs = std::map<std::string, std::optional<std::string>>;

void finish(const test::Control& worker) {
    FinishedEvent event;
    event.last = progress_at(10, 1.0);
    event.weights_sha256 = "abc";
    worker->emit(event, worker);
    worker->end(worker);
}

api::Job job_of(World& world, const std::string& id) {
    return await(world.manager->get(id)).value();
}

/// A world with a worker that does not obey, so that a test sees what comes in between.
class JobVerbsTest : public ::testing::Test {
  protected:
    JobVerbsTest() { world_.fleet.obey = false; }
    static void stop(const test::Control& worker) {
        worker->emit(CancelledEvent{4, "/c/4"}, worker);
        worker->end(worker);
    }
    World world_;
};

TEST_F(JobVerbsTest, ARunningJobIsPausedWhenItsWorkerHasEndedAndGoesOnLater) {
    const auto id = world_.submit("a");
    const auto worker = world_.fleet.next();
    const auto asked = await(world_.manager->command(id, job_verb("pause")));
    EXPECT_EQ(asked.kind, Kind::accepted);
    EXPECT_EQ(asked.job.state, JobState::pausing);
    EXPECT_EQ(asked.job.status_reason->code, "paused_by_user");
    EXPECT_EQ(await(world_.manager->command(id, job_verb("pause"))).job.state, JobState::pausing);
    EXPECT_THAT(worker->told, ElementsAre("cancel"));
    // What the worker still has to say changes neither state nor reason.
    worker->emit(StartedEvent{}, worker);
    worker->emit(WaitingEvent{"teacher_unavailable", "no answer", 1}, worker);
    stop(worker);
    const auto paused = wait_for_state(*world_.manager, id, JobState::paused);
    EXPECT_EQ(paused.status_reason->code, "paused_by_user");
    EXPECT_EQ(paused.status_reason->message, "paused after a checkpoint");
    EXPECT_EQ(await(world_.manager->command(id, job_verb("pause"))).kind, Kind::accepted);
    EXPECT_EQ(await(world_.manager->submit({spec_text("a"), "", false})).kind, JobVerdict::output_in_use);

    EXPECT_EQ(await(world_.manager->command(id, job_verb("resume"))).kind, Kind::accepted);
    const auto again = world_.fleet.next();
    EXPECT_TRUE(again->start.resume);
    EXPECT_EQ(again->start.spec_json, worker->start.spec_json);
    EXPECT_EQ(await(world_.manager->command(id, job_verb("resume"))).job.state, JobState::running);
    EXPECT_FALSE(job_of(world_, id).status_reason);
    finish(again);
    wait_for_state(*world_.manager, id, JobState::succeeded);
    EXPECT_EQ(await(world_.manager->command(id, job_verb("pause"))).kind, Kind::terminal);
    EXPECT_EQ(await(world_.manager->command(id, job_verb("resume"))).kind, Kind::terminal);
    EXPECT_EQ(await(world_.manager->command("nobody", job_verb("pause"))).kind, Kind::not_found);
    EXPECT_EQ(await(world_.manager->command("nobody", job_verb("resume"))).kind, Kind::not_found);
}

TEST_F(JobVerbsTest, AWorkerThatFinishesMeanwhileHasSucceeded) {
    const auto id = world_.submit("a");
    const auto worker = world_.fleet.next();
    await(world_.manager->command(id, job_verb("pause")));
    finish(worker);
    EXPECT_EQ(wait_for_state(*world_.manager, id, JobState::succeeded).weights_sha256, "abc");
}

TEST_F(JobVerbsTest, AQueuedJobIsPausedAtOnceAndComesBackToItsPlace) {
    world_.submit("a");
    const auto b = world_.submit("b");
    const auto c = world_.submit("c");
    world_.fleet.next();
    const auto waits = job_of(world_, c);
    EXPECT_EQ(waits.queue_position, 2U);
    EXPECT_EQ(waits.status_reason->code, "waiting_for_slot");
    EXPECT_EQ(waits.status_reason->message, "1 job is before it");
    EXPECT_EQ(job_of(world_, b).status_reason->message, "it is the next to get a slot");
    const auto paused = await(world_.manager->command(b, job_verb("pause"))).job;
    EXPECT_EQ(paused.state, JobState::paused);
    EXPECT_FALSE(paused.queue_position);
    EXPECT_EQ(job_of(world_, c).queue_position, 1U);
    const auto back = await(world_.manager->command(b, job_verb("resume"))).job;
    EXPECT_EQ(back.state, JobState::queued);
    EXPECT_EQ(back.queue_position, 1U);
    EXPECT_EQ(back.status_reason->code, "waiting_for_slot");
    EXPECT_THAT(world_.history(b), ElementsAre("state: job queued", "state: job paused: paused while it was queued",
                                               "message: resume requested", "state: job queued"));
}

TEST_F(JobVerbsTest, APauseThatIsTakenBackQueuesTheJobWhenItsWorkerHasEnded) {
    const auto id = world_.submit("a");
    const auto worker = world_.fleet.next();
    await(world_.manager->command(id, job_verb("pause")));
    const auto back = await(world_.manager->command(id, job_verb("resume"))).job;
    EXPECT_EQ(back.state, JobState::pausing);
    EXPECT_EQ(back.status_reason->code, "resumed_by_user");
    stop(worker);
    EXPECT_TRUE(world_.fleet.next()->start.resume);
    EXPECT_EQ(worker->kills, 0);
}

TEST_F(JobVerbsTest, SaysWhatAnInterruptedRunHasSaved) {
    const auto id = world_.submit("a");
    for (const auto* saved : {"paused before a step was done", "paused before another step was done"}) {
        const auto worker = world_.fleet.next();
        await(world_.manager->command(id, job_verb("pause")));
        worker->emit(CancelledEvent{}, worker);
        worker->end(worker);
        EXPECT_EQ(wait_for_state(*world_.manager, id, JobState::paused).status_reason->message, saved);
        await(world_.manager->command(id, job_verb("resume")));
    }
    const auto worker = world_.fleet.next();
    await(world_.manager->command(id, job_verb("cancel")));
    worker->emit(CancelledEvent{}, worker);
    worker->end(worker);
    EXPECT_EQ(wait_for_state(*world_.manager, id, JobState::cancelled).status_reason->message,
              "cancelled before another step was done");
}

TEST(JobVerbs, AWorkerThatDoesNotObeyIsKilledAndTheJobPaused) {
    JobManagerOptions options;
    options.cancel_grace = std::chrono::seconds(0);
    World world(options);
    world.fleet.obey = false;
    const auto id = world.submit("a");
    const auto worker = world.fleet.next();
    await(world.manager->command(id, job_verb("pause")));
    const auto job = wait_for_state(*world.manager, id, JobState::paused);
    EXPECT_THAT(job.status_reason->message, HasSubstr("did not stop in time and was killed"));
    EXPECT_EQ(worker->kills, 1);
}

TEST_F(JobVerbsTest, PausesSurviveTheService) {
    const auto paused = world_.submit("a");
    const auto first = world_.fleet.next();
    const auto pausing = world_.submit("b");
    const auto taken_back = world_.submit("c");
    await(world_.manager->command(paused, job_verb("pause")));
    stop(first);
    wait_for_state(*world_.manager, paused, JobState::paused);
    world_.fleet.next();
    await(world_.manager->command(pausing, job_verb("pause")));
    // As after kill -9.
    world_.manager.reset();
    EXPECT_EQ(world_.open_store()->get(pausing)->job.state, JobState::pausing);
    world_.open();
    EXPECT_EQ(job_of(world_, paused).state, JobState::paused);
    EXPECT_EQ(job_of(world_, pausing).state, JobState::paused);
    EXPECT_EQ(job_of(world_, pausing).status_reason->code, "paused_by_user");
    const auto worker = world_.fleet.next();
    EXPECT_EQ(worker->start.job_id, taken_back);
    await(world_.manager->command(taken_back, job_verb("pause")));
    await(world_.manager->command(taken_back, job_verb("resume")));
    world_.manager.reset();
    world_.open();
    const auto again = world_.fleet.next();
    EXPECT_EQ(again->start.job_id, taken_back) << "the pause was not wanted any more";
    EXPECT_TRUE(again->start.resume);
    await(world_.manager->command(pausing, job_verb("resume")));
    stop(again);
    EXPECT_EQ(job_of(world_, paused).state, JobState::paused);
}

TEST_F(JobVerbsTest, AServiceThatStopsLeavesAPausingJobPaused) {
    world_.fleet.obey = true;
    const auto id = world_.submit("a");
    const auto other = world_.submit("b");
    world_.fleet.next();
    await(world_.manager->command(id, job_verb("pause")));
    wait_for_state(*world_.manager, id, JobState::paused);
    world_.fleet.next();
    await(world_.manager->stop());
    EXPECT_EQ(job_of(world_, id).state, JobState::paused);
    EXPECT_EQ(job_of(world_, other).state, JobState::queued);
    EXPECT_EQ(await(world_.manager->command(id, job_verb("resume"))).job.state, JobState::queued);
    EXPECT_EQ(world_.fleet.count(), 2U);
}

TEST_F(JobVerbsTest, ACancelledJobGoesOnFromItsCheckpointWithItsHistory) {
    const auto id = world_.submit("a");
    const auto worker = world_.fleet.next();
    await(world_.manager->command(id, job_verb("cancel")));
    EXPECT_EQ(await(world_.manager->command(id, job_verb("resume"))).kind, Kind::cancelling);
    EXPECT_EQ(await(world_.manager->command(id, job_verb("pause"))).kind, Kind::cancelling);
    EXPECT_EQ(await(world_.manager->command(id, job_verb("checkpoint"))).kind, Kind::cancelling);
    worker->emit(CheckpointEvent{4, "/c/4", 0.1}, worker);
    stop(worker);
    const auto ended = wait_for_state(*world_.manager, id, JobState::cancelled);
    const auto before = world_.history(id).size();
    auto batch = await(world_.manager->wait_events(id, before, 100));
    EXPECT_TRUE(batch.ended);
    const auto resumed = await(world_.manager->command(id, job_verb("resume"))).job;
    EXPECT_FALSE(resumed.cancel_requested);
    EXPECT_EQ(resumed.finished_at, "");
    EXPECT_EQ(resumed.checkpoints.size(), 1U);
    const auto again = world_.fleet.next();
    EXPECT_TRUE(again->start.resume);
    // A reader that had seen the end hears more.
    batch = await(world_.manager->wait_events(id, before, 100));
    EXPECT_FALSE(batch.ended);
    ASSERT_FALSE(batch.events.empty());
    EXPECT_EQ(batch.events.front().sequence, before + 1);
    EXPECT_EQ(batch.events.front().message, "resume requested");
    finish(again);
    const auto job = wait_for_state(*world_.manager, id, JobState::succeeded);
    EXPECT_FALSE(job.finished_at.empty());
    EXPECT_FALSE(job.cancel_requested);
    EXPECT_EQ(await(world_.manager->list({})).jobs.size(), 1U);
}

TEST_F(JobVerbsTest, AFailedJobIsResumedOnlyWhereItCouldBeSubmitted) {
    const auto id = world_.submit("a");
    const auto worker = world_.fleet.next();
    worker->emit(FailedEvent{"teacher", "no answer"}, worker);
    worker->end(worker);
    wait_for_state(*world_.manager, id, JobState::failed);

    const auto data = world_.folder.path() / "t.jsonl";
    std::filesystem::rename(data, world_.folder.path() / "away");
    const auto missing = await(world_.manager->command(id, job_verb("resume")));
    EXPECT_EQ(missing.kind, Kind::not_runnable);
    EXPECT_EQ(missing.violations.violations.at(0).pointer, "/dataset/train");
    std::filesystem::rename(world_.folder.path() / "away", data);

    const auto user = world_.submit("a");
    const auto taken = await(world_.manager->command(id, job_verb("resume")));
    EXPECT_EQ(taken.kind, Kind::output_in_use);
    EXPECT_THAT(taken.violations.violations.at(0).detail, HasSubstr(user));
    EXPECT_EQ(taken.job.state, JobState::failed);
    finish(world_.fleet.next());
    wait_for_state(*world_.manager, user, JobState::succeeded);

    EXPECT_EQ(await(world_.manager->command(id, job_verb("resume"))).kind, Kind::accepted);
    world_.fleet.next();
    EXPECT_EQ(job_of(world_, id).state, JobState::running);
}

TEST(JobVerbs, WhatCannotBeWrittenIsNotResumed) {
    World world;
    const auto id = world.submit("a");
    world.fleet.next();
    await(world.manager->command(id, job_verb("cancel")));
    wait_for_state(*world.manager, id, JobState::cancelled);
    world.manager.reset();
    const auto full = std::make_shared<std::atomic<bool>>(false);
    world.open(std::make_unique<test::FullDisk>(world.open_store(), full), world.fleet.factory());
    *full = true;
    EXPECT_THROW(await(world.manager->command(id, job_verb("resume"))), ErrorException);
    JobPatch patch;
    patch.metadata = Pairs{{"k", "v"}};
    EXPECT_THROW(await(world.manager->change(id, patch)), ErrorException);
    *full = false;
    EXPECT_EQ(job_of(world, id).state, JobState::cancelled);
    EXPECT_THAT(job_of(world, id).metadata, IsEmpty());
    EXPECT_EQ(await(world.manager->command(id, job_verb("resume"))).kind, Kind::accepted);
}

TEST_F(JobVerbsTest, ResumedJobsTakeTheirOldPlace) {
    const auto first = world_.submit("a");
    const auto worker = world_.fleet.next();
    await(world_.manager->command(first, job_verb("cancel")));
    stop(worker);
    wait_for_state(*world_.manager, first, JobState::cancelled);
    world_.submit("b");
    world_.fleet.next();
    const auto third = world_.submit("c");
    const auto urgent = world_.submit_text(spec_text("d"), 7);
    EXPECT_EQ(await(world_.manager->command(first, job_verb("resume"))).job.queue_position, 2U);
    EXPECT_EQ(job_of(world_, urgent).queue_position, 1U);
    EXPECT_EQ(job_of(world_, urgent).priority, 7);
    EXPECT_EQ(job_of(world_, third).queue_position, 3U);
    // And after a restart of the service.
    await(world_.manager->command(first, job_verb("pause")));
    world_.manager.reset();
    world_.open();
    EXPECT_EQ(job_of(world_, third).queue_position, 2U) << "behind b, which ran";
    EXPECT_EQ(await(world_.manager->command(first, job_verb("resume"))).job.queue_position, 1U);
    EXPECT_EQ(world_.fleet.next()->start.job_id, urgent);
}

TEST_F(JobVerbsTest, CancelWithoutACheckpointReachesTheWorker) {
    const auto id = world_.submit("a");
    const auto worker = world_.fleet.next();
    await(world_.manager->command(id, job_verb("cancel"), false));
    stop(worker);
    const auto job = wait_for_state(*world_.manager, id, JobState::cancelled);
    EXPECT_EQ(job.status_reason->message, "cancelled without a last checkpoint");
    EXPECT_THAT(worker->told, ElementsAre("cancel unsaved"));

    const auto other = world_.submit("b");
    const auto second = world_.fleet.next();
    await(world_.manager->command(other, job_verb("pause")));
    await(world_.manager->command(other, job_verb("cancel"), false));
    await(world_.manager->command(other, job_verb("cancel"), false));
    EXPECT_THAT(second->told, ElementsAre("cancel", "cancel unsaved"));
    stop(second);
    wait_for_state(*world_.manager, other, JobState::cancelled);

    const auto paused = world_.submit("c");
    const auto third = world_.fleet.next();
    await(world_.manager->command(paused, job_verb("pause")));
    stop(third);
    wait_for_state(*world_.manager, paused, JobState::paused);
    EXPECT_EQ(await(world_.manager->command(paused, job_verb("cancel"))).job.state, JobState::cancelled);
}

TEST_F(JobVerbsTest, ACheckpointIsAskedForOfARunningJobOnly) {
    const auto id = world_.submit("a");
    const auto waits = world_.submit("b");
    const auto worker = world_.fleet.next();
    EXPECT_EQ(await(world_.manager->command(id, job_verb("checkpoint"))).kind, Kind::accepted);
    EXPECT_THAT(worker->told, ElementsAre("checkpoint"));
    EXPECT_EQ(world_.history(id).back(), "message: checkpoint requested");
    EXPECT_EQ(await(world_.manager->command(waits, job_verb("checkpoint"))).kind, Kind::not_running);
    EXPECT_EQ(await(world_.manager->command("nobody", job_verb("checkpoint"))).kind, Kind::not_found);
    finish(worker);
    wait_for_state(*world_.manager, id, JobState::succeeded);
    const auto refused = await(world_.manager->command(id, job_verb("checkpoint")));
    EXPECT_EQ(refused.kind, Kind::not_running);
    EXPECT_EQ(refused.job.state, JobState::succeeded);
}

TEST_F(JobVerbsTest, ALimitReachesTheWorkerAndTheWorkersAfterIt) {
    const auto id = world_.submit_text(test::distil_text("a"));
    const auto plain = world_.submit("b");
    const auto worker = world_.fleet.next();
    EXPECT_THAT(worker->told, IsEmpty());
    JobPatch patch;
    patch.max_concurrent = 3;
    EXPECT_EQ(await(world_.manager->change(plain, patch)).kind, Kind::no_remote_teacher);
    const auto changed = await(world_.manager->change(id, patch));
    EXPECT_EQ(changed.kind, Kind::accepted);
    EXPECT_EQ(changed.job.max_concurrent, 3U);
    EXPECT_THAT(worker->told, ElementsAre("limit 3"));
    EXPECT_EQ(world_.history(id).back(), "message: max_concurrent is 3 now");
    const auto spec = api::parse_job_spec(job_of(world_, id).resolved_spec_json);
    EXPECT_EQ(spec->teacher()->max_concurrent.limit, 8U) << "the spec stays as it was submitted";
    world_.manager.reset();
    world_.open();
    const auto again = world_.fleet.next();
    EXPECT_EQ(again->start.job_id, id);
    EXPECT_THAT(again->told, ElementsAre("limit 3"));
    EXPECT_EQ(job_of(world_, id).max_concurrent, 3U);
}

TEST_F(JobVerbsTest, PriorityAndMetadataAreKept) {
    world_.submit("a");
    const auto running = world_.fleet.next();
    const auto b = world_.submit("b");
    const auto c = world_.submit("c");
    JobPatch patch;
    patch.priority = 1;
    patch.metadata = Pairs{{"team", "red"}, {"run", "1"}};
    const auto changed = await(world_.manager->change(c, patch)).job;
    EXPECT_EQ(changed.queue_position, 1U);
    EXPECT_EQ(job_of(world_, b).queue_position, 2U);
    patch = {};
    patch.metadata = Pairs{{"run", std::nullopt}};
    await(world_.manager->change(c, patch));
    JobQuery wanted;
    wanted.metadata = {{"team", "red"}};
    EXPECT_EQ(await(world_.manager->list(wanted)).jobs.size(), 1U);
    await(world_.manager->command(c, job_verb("cancel")));
    wait_for_state(*world_.manager, c, JobState::cancelled);
    EXPECT_EQ(await(world_.manager->change(c, {1, {}, {}})).kind, Kind::terminal);
    patch.metadata = Pairs{{"seen", "yes"}};
    const auto events = world_.history(c).size();
    EXPECT_EQ(await(world_.manager->change(c, patch)).kind, Kind::accepted);
    EXPECT_EQ(world_.history(c).size(), events) << "nothing follows the end";
    world_.manager.reset();
    world_.open();
    EXPECT_THAT(job_of(world_, c).metadata, ElementsAre(std::pair<const std::string, std::string>{"seen", "yes"},
                                                        std::pair<const std::string, std::string>{"team", "red"}));
    EXPECT_EQ(job_of(world_, c).priority, 1);
    wanted.metadata = {{"team", "red"}, {"seen", "no"}};
    EXPECT_THAT(await(world_.manager->list(wanted)).jobs, IsEmpty());
    patch.metadata.emplace();
    for (int pair = 0; pair < 15; ++pair) {
        (*patch.metadata)["k" + std::to_string(pair)] = "v";
    }
    const auto refused = await(world_.manager->change(c, patch));
    EXPECT_EQ(refused.kind, Kind::invalid_change);
    EXPECT_EQ(refused.violations.violations.at(0).pointer, "/metadata");
}

}  // namespace
}  // namespace distilld
