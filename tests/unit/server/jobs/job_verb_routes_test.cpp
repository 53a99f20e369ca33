#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>

#include "tests/unit/server/jobs/routes_fixture.hpp"

namespace distilld {
namespace {

using api::JobState;
using test::distil_text;
using test::Query;
using test::spec_text;
using test::wait_for_state;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class JobVerbRoutesTest : public test::RoutesTest {
  protected:
    http::Response verb(const std::string& name, const std::string& id, Query query = {}) {
        http::Request request;
        request.path_parameters = {{"id", id}};
        request.query = std::move(query);
        return call("POST", "/v1/jobs/{id}/" + name, std::move(request));
    }
    http::Response patch(const std::string& id, const std::string& text) {
        http::Request request;
        request.path_parameters = {{"id", id}};
        request.body = text;
        return call("PATCH", "/v1/jobs/{id}", std::move(request));
    }
    static std::string detail(const http::Response& response) {
        return std::string(body(response).at("detail").as_string());
    }
    static std::vector<std::string> pointers(const http::Response& response) {
        std::vector<std::string> all;
        const auto problem = body(response);
        for (const auto& error : problem.at("errors").as_array()) {
            all.emplace_back(error.at("pointer").as_string());
        }
        return all;
    }
    std::vector<std::string> listed(Query query) {
        std::vector<std::string> ids;
        const auto list = body(get("/v1/jobs", "", std::move(query)));
        for (const auto& job : list.at("data").as_array()) {
            ids.emplace_back(job.at("id").as_string());
        }
        return ids;
    }
};

TEST_F(JobVerbRoutesTest, PauseAndResumeAnswerWithTheJob) {
    const auto id = submitted("a");
    world_.fleet.next();
    const auto pausing = verb("pause", id);
    EXPECT_EQ(pausing.status, 202U);
    EXPECT_EQ(body(pausing).at("state").as_string(), "pausing");
    EXPECT_FALSE(body(pausing).at("terminal").as_bool());
    EXPECT_EQ(body(pausing).at("status_reason").at("code").as_string(), "paused_by_user");
    wait_for_state(*world_.manager, id, JobState::paused);
    // A job shows its state a moment before the store has it, which lists jobs by it.
    for (int round = 0; round < 1000 && listed({{"state", "paused"}}).empty(); ++round) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_THAT(listed({{"state", "paused"}}), ElementsAre(id));
    EXPECT_THAT(get("/metrics").body, HasSubstr("distilld_jobs{state=\"paused\"} 1\n"));
    const auto removed = remove(id);
    EXPECT_EQ(code(removed), "job_is_not_terminal");
    EXPECT_THAT(detail(removed), HasSubstr("paused"));
    const auto resumed = verb("resume", id);
    EXPECT_EQ(resumed.status, 202U);
    finish(world_.fleet.next());
    wait_for_state(*world_.manager, id, JobState::succeeded);
    for (const auto* name : {"pause", "resume", "cancel"}) {
        EXPECT_EQ(verb(name, id).status, 409U) << name;
        EXPECT_EQ(code(verb(name, id)), "job_is_terminal") << name;
        EXPECT_THAT(detail(verb(name, id)), HasSubstr("succeeded")) << name;
    }
    for (const auto* name : {"pause", "resume", "cancel", "checkpoint"}) {
        EXPECT_EQ(verb(name, "nobody").status, 404U) << name;
        EXPECT_EQ(code(verb(name, id, {{"force", "true"}})), "unknown_parameter") << name;
    }
}

TEST_F(JobVerbRoutesTest, SaysWhyAJobCannotBeResumed) {
    const auto id = submitted("a");
    world_.fleet.next();
    EXPECT_EQ(cancel(id).status, 202U);
    wait_for_state(*world_.manager, id, JobState::cancelled);
    const auto other = submitted("a");
    const auto taken = verb("resume", id);
    EXPECT_EQ(taken.status, 409U);
    EXPECT_EQ(code(taken), "output_in_use");
    EXPECT_THAT(pointers(taken), ElementsAre("/output"));
    EXPECT_THAT(detail(taken), HasSubstr(other));
    world_.fleet.next();
    cancel(other);
    wait_for_state(*world_.manager, other, JobState::cancelled);
    std::filesystem::remove(world_.folder.path() / "t.jsonl");
    const auto missing = verb("resume", id);
    EXPECT_EQ(missing.status, 409U);
    EXPECT_EQ(code(missing), "job_is_not_runnable");
    EXPECT_THAT(pointers(missing), ElementsAre("/dataset/train"));
    std::ofstream(world_.folder.path() / "t.jsonl") << "{}\n";
    EXPECT_EQ(verb("resume", id).status, 202U);
    world_.fleet.next();
    cancel(id);
    wait_for_state(*world_.manager, id, JobState::cancelled);
    test::await(world_.manager->stop());
    EXPECT_EQ(verb("resume", id).status, 503U);
}

TEST_F(JobVerbRoutesTest, CancelTakesACheckpointUnlessToldOtherwise) {
    world_.fleet.obey = false;
    const auto id = submitted("a");
    const auto worker = world_.fleet.next();
    EXPECT_EQ(code(verb("cancel", id, {{"checkpoint", "no"}})), "invalid_parameter");
    EXPECT_EQ(verb("cancel", id, {{"checkpoint", "true"}}).status, 202U);
    EXPECT_EQ(verb("cancel", id, {{"checkpoint", "false"}}).status, 202U);
    EXPECT_THAT(worker->told, ElementsAre("cancel", "cancel unsaved"));
    EXPECT_EQ(code(verb("pause", id)), "job_is_cancelling");
}

TEST_F(JobVerbRoutesTest, CheckpointsAreOfRunningTrainings) {
    const auto id = submitted("a");
    const auto waits = submitted("b");
    const auto worker = world_.fleet.next();
    EXPECT_EQ(verb("checkpoint", id).status, 202U);
    EXPECT_THAT(worker->told, ElementsAre("checkpoint"));
    const auto refused = verb("checkpoint", waits);
    EXPECT_EQ(refused.status, 409U);
    EXPECT_EQ(code(refused), "job_is_not_running");
    EXPECT_THAT(detail(refused), HasSubstr("it is waiting in the queue"));
    const auto generate = post(R"({"kind":"generate","teacher":{"endpoints":["http://127.0.0.1:9"],"store":"s"},)"
                               R"("dataset":{"train":"t.jsonl","sequence_length":16}})");
    ASSERT_EQ(generate.status, 201U) << generate.body;
    const auto none = verb("checkpoint", std::string(body(generate).at("id").as_string()));
    EXPECT_EQ(none.status, 409U);
    EXPECT_EQ(code(none), "job_has_no_checkpoints");
}

TEST_F(JobVerbRoutesTest, PriorityOrdersTheQueue) {
    const auto first = post(spec_text("a"), {}, {{"priority", "-100"}});
    EXPECT_EQ(body(first).at("priority").as_int64(), -100);
    world_.fleet.next();
    const auto low = submitted("b");
    const auto high = post(spec_text("c"), {}, {{"priority", "100"}});
    EXPECT_EQ(body(high).at("queue_position").as_int64(), 1);
    EXPECT_EQ(body(get("/v1/jobs/{id}", low)).at("queue_position").as_int64(), 2);
    EXPECT_EQ(body(patch(low, R"({"priority":100})")).at("queue_position").as_int64(), 1)
        << "of the same priority the older goes first";
    for (const auto* wrong : {"101", "-101", "1.5", "", "high", "+1"}) {
        EXPECT_EQ(code(post(spec_text("d"), {}, {{"priority", wrong}})), "invalid_parameter") << wrong;
    }
}

TEST_F(JobVerbRoutesTest, APatchChangesAllOfItOrNothing) {
    const auto id = std::string(body(post(distil_text("a"))).at("id").as_string());
    const auto worker = world_.fleet.next();
    const auto changed = patch(id, R"({"priority":-3,"max_concurrent":2.0,"metadata":{"team":"red","käse":"π"}})");
    EXPECT_EQ(changed.status, 200U) << changed.body;
    const auto job = body(changed);
    EXPECT_EQ(job.at("priority").as_int64(), -3);
    EXPECT_EQ(job.at("max_concurrent").as_int64(), 2);
    EXPECT_EQ(job.at("metadata").at("team").as_string(), "red");
    EXPECT_THAT(worker->told, ElementsAre("limit 2"));
    EXPECT_EQ(body(patch(id, R"({"metadata":{"team":null}})")).at("metadata").as_object().size(), 1U);
    EXPECT_EQ(patch(id, R"({"metadata":{}})").status, 200U);

    const std::string long_name(65, 'n');
    const std::string long_text(513, 't');
    const auto refused = patch(id, R"({"priority":101,"max_concurrent":0,"prio":1,"metadata":{"a":1,"":"b",")" +
                                       long_name + R"(":"c","d":")" + long_text + R"("}})");
    EXPECT_EQ(refused.status, 400U);
    EXPECT_EQ(code(refused), "invalid_job_change");
    EXPECT_THAT(pointers(refused), ElementsAre("/priority", "/max_concurrent", "/metadata/a", "/metadata/",
                                               "/metadata/" + long_name, "/metadata/d", "/prio"));
    EXPECT_EQ(body(get("/v1/jobs/{id}", id)).at("priority").as_int64(), -3);
    for (const auto* wrong :
         {"", "[]", "{}", "nonsense", R"({"priority":"1"})", R"({"priority":1.5})", R"({"priority":null})",
          R"({"priority":1,"priority":2})", R"({"max_concurrent":1025})", R"({"max_concurrent":"auto"})",
          R"({"metadata":null})", R"({"metadata":[]})", R"({"priority":1e300})", R"({"state":"paused"})"}) {
        EXPECT_EQ(patch(id, wrong).status, 400U) << wrong;
    }
    EXPECT_EQ(patch(id, R"({"metadata":{"a":")" + std::string(70000, 'x') + R"("}})").status, 400U);
    EXPECT_EQ(patch("nobody", R"({"priority":1})").status, 404U);
    EXPECT_EQ(code(patch(submitted("b"), R"({"max_concurrent":1})")), "job_has_no_remote_teacher");
    finish(worker);
    wait_for_state(*world_.manager, id, JobState::succeeded);
    const auto late = patch(id, R"({"priority":1,"metadata":{"x":"y"}})");
    EXPECT_EQ(code(late), "job_is_terminal");
    EXPECT_FALSE(body(get("/v1/jobs/{id}", id)).at("metadata").as_object().contains("x"));
    EXPECT_EQ(patch(id, R"({"metadata":{"x":"y"}})").status, 200U);
}

TEST_F(JobVerbRoutesTest, JobsAreFoundByTheirMetadata) {
    const auto a = submitted("a");
    const auto b = submitted("b");
    patch(a, R"({"metadata":{"team":"red","say \"x\" [y]":"%"}})");
    patch(b, R"({"metadata":{"team":"red","number":"7"}})");
    EXPECT_THAT(listed({{"metadata[team]", "red"}}), ElementsAre(b, a));
    EXPECT_THAT(listed({{"metadata[team]", "red"}, {"metadata[number]", "7"}}), ElementsAre(b));
    EXPECT_THAT(listed({{"metadata[say \"x\" [y]]", "%"}}), ElementsAre(a));
    EXPECT_TRUE(listed({{"metadata[team]", "blue"}}).empty());
    EXPECT_TRUE(listed({{"metadata[Team]", "red"}}).empty());
    EXPECT_THAT(listed({{"metadata[team]", "red"}, {"limit", "1"}, {"after", b}}), ElementsAre(a));
    for (const Query& wrong : {Query{{"metadata", "x"}}, Query{{"metadata[]", "x"}}, Query{{"metadata[a", "x"}},
                               Query{{"metadatax[a]", "x"}}, Query{{"metadata[a]", "x"}, {"metadata[a]", "x"}},
                               Query{{"metadata[a]", std::string(513, 'x')}}}) {
        EXPECT_EQ(get("/v1/jobs", "", wrong).status, 400U) << wrong[0].first;
    }
}

}  // namespace
}  // namespace distilld
