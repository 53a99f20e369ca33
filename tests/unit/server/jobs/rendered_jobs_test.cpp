#include "server/jobs/rendered_jobs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_text.hpp"
#include "server/jobs/api_route.hpp"
#include "server/jobs/job_access.hpp"
#include "tests/unit/server/jobs/fake_worker.hpp"

namespace distilld {
namespace {

using api::JobState;
using api::Role;
using test::await;
using test::Control;
using test::wait_for_state;
using ::testing::HasSubstr;
using ::testing::Not;

JobManagerOptions one_slot() {
    JobManagerOptions options;
    options.metrics_interval = std::chrono::hours(1);
    options.places = {Slot{0, {0, 1}, "GPU-1"}};
    return options;
}

api::Request asking(const std::string& id, std::optional<api::Caller> caller = {}) {
    api::Request request;
    request.path = "/v1/jobs/" + id;
    request.path_parameters = {{"id", id}};
    request.caller = std::move(caller);
    return request;
}

class RenderedJobsTest : public ::testing::Test {
  protected:
    std::string shown(const std::string& id, std::optional<api::Caller> caller = {}) {
        const auto request = asking(id, std::move(caller));
        return await(rendered_.text(request));
    }
    std::string anew(const std::string& id) {
        return to_text(api::to_json_object(visible_job(await(world_.manager->get(id)).value(), asking(id)), true));
    }
    /// Whether the answer had to be made anew; it must be what it would be then, and kept from there on.
    bool changed(const std::string& id) {
        const auto before = rendered_.rendered();
        const auto text = shown(id);
        EXPECT_EQ(text, anew(id));
        const auto now = rendered_.rendered();
        EXPECT_EQ(shown(id), text);
        EXPECT_EQ(rendered_.rendered(), now) << "nothing has changed in between";
        return now != before;
    }
    /// What was posted to the manager's thread, and what that posts there, has run.
    void settle() {
        for (int turn = 0; turn < 3; ++turn) {
            await(world_.manager->answer());
        }
    }
    void say(const Control& worker, WorkerEvent event) {
        worker->emit(std::move(event), worker);
        settle();
    }
    void patch(const std::string& id, JobPatch patch) {
        EXPECT_EQ(await(world_.manager->change(id, std::move(patch))).kind, VerbOutcome::Kind::accepted);
    }
    static JobPatch metadata(const std::string& text) {
        JobPatch patch;
        patch.metadata = {{"note", text}};
        return patch;
    }
    static WaitingEvent waits() { return {"teacher_unavailable", "no answer", 1.0}; }

    test::World world_{one_slot()};
    RenderedJobs rendered_{*world_.manager};
};

TEST_F(RenderedJobsTest, AJobIsWrittenOnceUntilItChanges) {
    const auto id = world_.submit("a");
    world_.fleet.next();
    settle();
    const auto first = shown(id);
    EXPECT_EQ(first, anew(id));
    for (int poll = 0; poll < 20; ++poll) {
        EXPECT_EQ(shown(id), first);
    }
    EXPECT_EQ(rendered_.rendered(), 1U);
    const auto other = world_.submit("b");
    patch(other, metadata("b"));
    settle();
    EXPECT_EQ(shown(id), first);
    EXPECT_EQ(rendered_.rendered(), 1U) << "what happens to another job is nothing to it";
}

TEST_F(RenderedJobsTest, WhateverTheWorkerSaysIsShown) {
    const auto id = world_.submit_text(test::distil_text("a"));
    const auto worker = world_.fleet.next();
    settle();
    EXPECT_TRUE(changed(id));
    StartedEvent started;
    started.dtype = "bf16";
    started.batch_size = 2;
    started.micro_batches = 1;
    EvaluationEvent evaluation;
    evaluation.loss = 2.25;
    const std::vector<std::pair<WorkerEvent, std::string>> said{
        {started, R"("dtype":"bf16")"},
        {test::progress_at(1, 1.5), R"("step":1)"},
        {test::progress_at(2, 1.5), R"("step":2)"},  // which no event of metrics tells
        {evaluation, R"("eval_loss":2.25)"},
        {CheckpointEvent{2, "/out/checkpoints/2", 0.5}, "/out/checkpoints/2"},
        {waits(), "teacher_unavailable"},
        {WaitingEvent{}, R"("status_reason":null)"},
    };
    for (const auto& [event, text] : said) {
        say(worker, event);
        EXPECT_TRUE(changed(id)) << text;
        EXPECT_THAT(shown(id), HasSubstr(text));
    }
    // It goes on with smaller micro-batches: what is in force of the spec changes.
    say(worker, FailedEvent{kWorkerOutOfMemory, "no room"});
    worker->end(worker, WorkerExit{1, ""});
    world_.fleet.next();
    settle();
    EXPECT_TRUE(changed(id));
    EXPECT_THAT(shown(id), HasSubstr(R"("micro_batches":2)"));
}

TEST_F(RenderedJobsTest, WhateverTheUserAsksForIsShown) {
    const auto id = world_.submit_text(test::distil_text("a"));
    const auto worker = world_.fleet.next();
    worker->obeys = false;
    settle();
    EXPECT_TRUE(changed(id));
    JobPatch priority;
    priority.priority = 7;
    JobPatch limit;
    limit.max_concurrent = 3;
    auto& manager = *world_.manager;
    const std::vector<std::pair<std::function<void()>, std::string>> asked{
        {[&] { patch(id, metadata("blue")); }, "blue"},
        {[&] { patch(id, priority); }, R"("priority":7)"},
        {[&] { patch(id, limit); }, R"("max_concurrent":3)"},
        {[&] { await(manager.pause(id)); }, R"("state":"pausing")"},
        {[&] { await(manager.resume(id)); }, kResumedByUser},
        {[&] { await(manager.cancel(id)); }, R"("cancel_requested":true)"},
    };
    for (const auto& [ask, text] : asked) {
        EXPECT_THAT(shown(id), Not(HasSubstr(text)));
        ask();
        settle();
        EXPECT_TRUE(changed(id)) << text;
        EXPECT_THAT(shown(id), HasSubstr(text));
    }
}

TEST_F(RenderedJobsTest, PlaceAndSlotAreShown) {
    const auto first = world_.submit("a");
    const auto worker = world_.fleet.next();
    const auto second = world_.submit("b");
    const auto third = world_.submit("c");
    settle();
    EXPECT_THAT(shown(first), HasSubstr(R"("device":"GPU-1")"));
    EXPECT_THAT(shown(third), HasSubstr(R"("queue_position":2)"));
    await(world_.manager->pause(second));
    settle();
    EXPECT_TRUE(changed(third));
    EXPECT_THAT(shown(third), HasSubstr("it is the next to get a slot"));
    await(world_.manager->resume(second));
    settle();
    EXPECT_TRUE(changed(third));
    EXPECT_THAT(shown(third), HasSubstr(R"("queue_position":2)"));
    worker->emit(FinishedEvent{}, worker);
    worker->end(worker);
    world_.fleet.next();
    settle();
    EXPECT_TRUE(changed(first));
    EXPECT_THAT(shown(first), HasSubstr(R"("state":"succeeded")"));
    EXPECT_TRUE(changed(second));
    EXPECT_THAT(shown(second), HasSubstr(R"("device":"GPU-1")"));
    EXPECT_TRUE(changed(third));
    EXPECT_THAT(shown(third), HasSubstr(R"("queue_position":1)"));
}

TEST_F(RenderedJobsTest, AJobThatHasEndedCanChangeAndGo) {
    const auto id = world_.submit("a");
    world_.fleet.next();
    await(world_.manager->cancel(id));
    wait_for_state(*world_.manager, id, JobState::cancelled);
    settle();
    EXPECT_TRUE(changed(id));
    patch(id, metadata("after the end"));
    EXPECT_TRUE(changed(id));
    EXPECT_THAT(shown(id), HasSubstr("after the end"));
    await(world_.manager->resume(id));
    world_.fleet.next();
    settle();
    EXPECT_TRUE(changed(id));
    EXPECT_THAT(shown(id), HasSubstr(R"("state":"running")"));
    await(world_.manager->cancel(id));
    wait_for_state(*world_.manager, id, JobState::cancelled);
    settle();
    EXPECT_TRUE(changed(id));
    EXPECT_EQ(await(world_.manager->remove(id)).kind, RemoveOutcome::Kind::removed);
    try {
        shown(id);
        FAIL() << "it is still shown";
    } catch (const ProblemError& error) {
        EXPECT_EQ(error.problem.status, 404U);
    }
    EXPECT_EQ(rendered_.texts(), 0U);
    EXPECT_EQ(rendered_.bytes(), 0U);
}

TEST_F(RenderedJobsTest, NobodyIsGivenWhatAnotherMaySee) {
    const std::string spec =
        R"({"student":{"model":"m"},"dataset":{"train":"t.jsonl","sequence_length":16},"training":{"max_steps":1},)"
        R"("teacher":{"endpoints":["http://h:1/v1?key=s3cret"]},"output":"/out/a"})";
    const api::Caller alice{"alice", Role::submit, "key-a"};
    const api::Caller bob{"bob", Role::submit, "key-b"};
    const api::Caller root{"root", Role::admin, "key-r"};
    const api::Caller reader{"alice's friend", Role::read, "key-f"};
    const auto id = await(world_.manager->submit({spec, "", false, alice})).job.id;
    world_.fleet.next();
    settle();
    for (int turn = 0; turn < 2; ++turn) {
        EXPECT_THAT(shown(id, alice), HasSubstr("s3cret"));
        EXPECT_THAT(shown(id, bob), Not(HasSubstr("s3cret")));
        EXPECT_THAT(shown(id, reader), Not(HasSubstr("s3cret")));
        EXPECT_THAT(shown(id, root), HasSubstr("s3cret"));
        EXPECT_THAT(shown(id), HasSubstr("s3cret")) << "without keys everybody is the owner";
    }
    EXPECT_EQ(rendered_.rendered(), 2U) << "one for those who may see all, one for the others";
}

TEST_F(RenderedJobsTest, KeepsSoManyAndThoseThatWereAskedForLast) {
    const auto a = world_.submit("a");
    world_.fleet.next();
    const auto b = world_.submit("b");
    const auto c = world_.submit("c");
    settle();
    RenderedJobs two(*world_.manager, {.max_texts = 2});
    const auto ask = [&two](const std::string& id) {
        const auto request = asking(id);
        return await(two.text(request)).size();
    };
    ask(a);
    ask(b);
    ask(a);
    const auto bytes = ask(c) + ask(a);
    EXPECT_EQ(two.rendered(), 3U) << "a was asked for after b, which went for c";
    EXPECT_EQ(two.texts(), 2U);
    EXPECT_EQ(two.bytes(), bytes);
    ask(b);
    EXPECT_EQ(two.rendered(), 4U);
    EXPECT_EQ(two.texts(), 2U);
}

TEST_F(RenderedJobsTest, KeepsSoManyBytes) {
    const auto a = world_.submit("a");
    world_.fleet.next();
    const auto b = world_.submit("b");
    settle();
    const auto size = std::max(shown(a).size(), shown(b).size());
    RenderedJobs one(*world_.manager, {.max_bytes = size});
    RenderedJobs none(*world_.manager, {.max_bytes = 10});
    for (const auto& id : {a, b}) {
        const auto request = asking(id);
        await(one.text(request));
        EXPECT_EQ(await(none.text(request)), shown(id));
    }
    EXPECT_EQ(one.texts(), 1U);
    EXPECT_LE(one.bytes(), size);
    EXPECT_EQ(none.texts(), 0U);
    EXPECT_EQ(none.bytes(), 0U);
}

}  // namespace
}  // namespace distilld
