#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_text.hpp"
#include "server/jobs/routes/api_route.hpp"
#include "server/jobs/routes/job_access.hpp"
#include "server/jobs/table/job_intent.hpp"
#include "tests/unit/server/jobs/routes_fixture.hpp"

namespace distilld {
namespace {

using api::JobState;
using http::Role;
using test::await;
using test::Control;
using test::wait_for_state;
using ::testing::HasSubstr;
using ::testing::Not;

JobManagerOptions one_slot() {
    JobManagerOptions options;
    options.metrics_interval = std::chrono::hours(1);
    options.slot_layout = {Slot{0, {0, 1}, "GPU-1"}};
    return options;
}

http::Request asking(const std::string& id, std::optional<http::Caller> caller = {}) {
    http::Request request;
    request.path = "/v1/jobs/" + id;
    request.path_parameters = {{"id", id}};
    request.caller = std::move(caller);
    return request;
}

class JobTagTest : public test::RoutesTest {
  protected:
    JobTagTest() : RoutesTest(one_slot()) {}

    http::Response answer(const std::string& id, std::optional<http::Caller> caller = {}, const std::string& tag = {}) {
        http::Request request = asking(id, std::move(caller));
        if (!tag.empty()) {
            request.headers.push_back({"if-none-match", tag});
        }
        return call("GET", "/v1/jobs/{id}", std::move(request));
    }
    std::string shown(const std::string& id, std::optional<http::Caller> caller = {}) {
        return answer(id, std::move(caller)).body;
    }
    static std::string tag_of(const http::Response& response) {
        for (const auto& [name, value] : response.headers) {
            if (name == "ETag") {
                return value;
            }
        }
        return {};
    }
    std::string anew(const std::string& id) {
        return to_text(api::to_json_object(visible_job(await(world_.manager->get(id)).value(), asking(id)), true));
    }
    /// Whether the tag of the last answer is not the job's any more. The answer must be what it would be now.
    bool changed(const std::string& id) {
        const auto since = answer(id, {}, tags_[id]);
        const auto now = answer(id);
        EXPECT_EQ(now.body, anew(id));
        EXPECT_EQ(answer(id, {}, tag_of(now)).status, 304U) << "nothing has changed in between";
        tags_[id] = tag_of(now);
        return since.status == 200;
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
        EXPECT_EQ(await(world_.manager->change(id, std::move(patch))).kind, JobVerdict::accepted);
    }
    static JobPatch metadata(const std::string& text) {
        JobPatch patch;
        patch.metadata = {{"note", text}};
        return patch;
    }
    static WaitingEvent waits() { return {"teacher_unavailable", "no answer", 1.0}; }

    std::map<std::string, std::string> tags_;  ///< of the last answers
};

TEST_F(JobTagTest, AJobThatHasNotChangedIsNotSentAgain) {
    const auto id = world_.submit("a");
    world_.fleet.next();
    settle();
    const auto first = answer(id);
    EXPECT_EQ(first.body, anew(id));
    const auto again = answer(id, {}, "W/\"other\", " + tag_of(first));
    EXPECT_EQ(again.status, 304U);
    EXPECT_EQ(again.body, "");
    EXPECT_EQ(tag_of(again), tag_of(first));
    const auto other = world_.submit("b");
    patch(other, metadata("b"));
    settle();
    EXPECT_EQ(answer(id, {}, tag_of(first)).status, 304U) << "what happens to another job is nothing to it";
    EXPECT_EQ(answer(other, {}, tag_of(first)).status, 200U);
    EXPECT_EQ(answer(id, {}, "*").status, 200U);
}

TEST_F(JobTagTest, WhateverTheWorkerSaysIsShown) {
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

TEST_F(JobTagTest, WhateverTheUserAsksForIsShown) {
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
        {[&] { await(manager.command(id, job_verb("pause"))); }, R"("state":"pausing")"},
        {[&] { await(manager.command(id, job_verb("resume"))); }, kResumedByUser},
        {[&] { await(manager.command(id, job_verb("cancel"))); }, R"("cancel_requested":true)"},
    };
    for (const auto& [ask, text] : asked) {
        EXPECT_THAT(shown(id), Not(HasSubstr(text)));
        ask();
        settle();
        EXPECT_TRUE(changed(id)) << text;
        EXPECT_THAT(shown(id), HasSubstr(text));
    }
}

TEST_F(JobTagTest, PlaceAndSlotAreShown) {
    const auto first = world_.submit("a");
    const auto worker = world_.fleet.next();
    const auto second = world_.submit("b");
    const auto third = world_.submit("c");
    settle();
    EXPECT_THAT(shown(first), HasSubstr(R"("device":"GPU-1")"));
    EXPECT_THAT(shown(third), HasSubstr(R"("queue_position":2)"));
    await(world_.manager->command(second, job_verb("pause")));
    settle();
    EXPECT_TRUE(changed(third));
    EXPECT_THAT(shown(third), HasSubstr("it is the next to get a slot"));
    await(world_.manager->command(second, job_verb("resume")));
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

TEST_F(JobTagTest, AJobThatHasEndedCanChangeAndGo) {
    const auto id = world_.submit("a");
    world_.fleet.next();
    await(world_.manager->command(id, job_verb("cancel")));
    wait_for_state(*world_.manager, id, JobState::cancelled);
    settle();
    EXPECT_TRUE(changed(id));
    patch(id, metadata("after the end"));
    EXPECT_TRUE(changed(id));
    EXPECT_THAT(shown(id), HasSubstr("after the end"));
    await(world_.manager->command(id, job_verb("resume")));
    world_.fleet.next();
    settle();
    EXPECT_TRUE(changed(id));
    EXPECT_THAT(shown(id), HasSubstr(R"("state":"running")"));
    await(world_.manager->command(id, job_verb("cancel")));
    wait_for_state(*world_.manager, id, JobState::cancelled);
    settle();
    EXPECT_TRUE(changed(id));
    EXPECT_EQ(await(world_.manager->remove(id)).kind, JobVerdict::accepted);
    EXPECT_EQ(answer(id, {}, tags_[id]).status, 404U);
}

TEST_F(JobTagTest, NobodyIsGivenWhatAnotherMaySee) {
    const std::string spec =
        R"({"student":{"model":"m"},"dataset":{"train":"t.jsonl","sequence_length":16},"training":{"max_steps":1},)"
        R"("teacher":{"endpoints":["http://h:1/v1?key=s3cret"]},"output":"/out/a"})";
    const http::Caller alice{"alice", Role::submit, "key-a"};
    const http::Caller bob{"bob", Role::submit, "key-b"};
    const http::Caller root{"root", Role::admin, "key-r"};
    const http::Caller reader{"alice's friend", Role::read, "key-f"};
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
    EXPECT_EQ(answer(id, alice, tag_of(answer(id, alice))).status, 304U);
    EXPECT_EQ(answer(id, bob, tag_of(answer(id, alice))).status, 200U) << "what a cache holds of one is not another's";
}

}  // namespace
}  // namespace distilld
