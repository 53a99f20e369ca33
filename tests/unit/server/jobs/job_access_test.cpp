#include "server/jobs/routes/job_access.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tests/unit/server/jobs/routes_fixture.hpp"

namespace distilld {
namespace {

using http::Role;
using ::testing::HasSubstr;
using ::testing::Not;

class Owners : public test::RoutesTest {
  protected:
    static http::Request from(const std::string& name, Role role) {
        http::Request request;
        request.caller = http::Caller{name, role, "key-of-" + name};
        return request;
    }
    http::Response submit(const std::string& name, const std::string& output, const std::string& key = "") {
        auto request = from(name, Role::submit);
        request.body = test::spec_text(output);
        if (!key.empty()) {
            request.headers = {{"Idempotency-Key", key}};
        }
        return call("POST", "/v1/jobs", std::move(request));
    }
    std::string id_of(const http::Response& response) { return std::string(body(response).at("id").as_string()); }
    http::Response order(const std::string& method, const std::string& pattern, const std::string& id,
                         const std::string& name, Role role) {
        auto request = from(name, role);
        request.path_parameters = {{"id", id}};
        return call(method, pattern, std::move(request));
    }
};

TEST_F(Owners, AJobIsOfTheKeyThatSubmittedIt) {
    const auto made = submit("alice", "/out/a");
    ASSERT_EQ(made.status, 201U);
    EXPECT_EQ(body(made).at("owner"), "alice");
}

TEST_F(Owners, OnlyTheOwnerAndAdminsChangeIt) {
    const auto id = id_of(submit("alice", "/out/a"));
    for (const auto& [method, pattern] : {std::pair{"POST", "/v1/jobs/{id}/cancel"}, {"DELETE", "/v1/jobs/{id}"}}) {
        const auto refused = order(method, pattern, id, "bob", Role::submit);
        EXPECT_EQ(refused.status, 403U) << pattern;
        EXPECT_EQ(code(refused), "not_your_job");
    }
    EXPECT_EQ(order("POST", "/v1/jobs/{id}/cancel", id, "alice", Role::submit).status, 202U);
    EXPECT_EQ(order("POST", "/v1/jobs/{id}/cancel", "job-none", "bob", Role::submit).status, 404U);
    const auto other = id_of(submit("alice", "/out/b"));
    EXPECT_EQ(order("POST", "/v1/jobs/{id}/cancel", other, "root", Role::admin).status, 202U);
}

TEST_F(Owners, F12AKeyOfTheSameNameIsNotTheOwner) {
    const auto made = submit("alice", "/out/a", "once");
    const auto id = id_of(made);
    auto later = from("alice", Role::submit);
    later.caller->id = "key-made-later";
    later.path_parameters = {{"id", id}};
    EXPECT_EQ(call("POST", "/v1/jobs/{id}/cancel", later).status, 403U);
    later.path_parameters.clear();
    later.headers = {{"Idempotency-Key", "once"}};
    later.body = test::spec_text("/out/b");
    const auto another = call("POST", "/v1/jobs", std::move(later));
    ASSERT_EQ(another.status, 201U) << "nor has it her idempotency keys";
    EXPECT_NE(id_of(another), id);
    EXPECT_EQ(body(another).at("owner"), "alice");
}

TEST_F(Owners, F12AKeyWithoutAnIdOwnsNothing) {
    const auto id = submitted("/out/a");
    auto request = from("", Role::submit);
    request.caller->id.clear();
    request.path_parameters = {{"id", id}};
    EXPECT_EQ(call("POST", "/v1/jobs/{id}/cancel", std::move(request)).status, 403U);
}

TEST_F(Owners, AJobOfNobodyIsForAdmins) {
    const auto id = submitted("/out/a");
    EXPECT_EQ(order("POST", "/v1/jobs/{id}/cancel", id, "alice", Role::submit).status, 403U);
    EXPECT_EQ(order("POST", "/v1/jobs/{id}/cancel", id, "root", Role::admin).status, 202U);
}

TEST_F(Owners, EveryRouteThatChangesAJobAsks) {
    const auto id = id_of(submit("alice", "/out/a"));
    int seen = 0;
    for (const auto& route : routes_) {
        if (route.method == "GET" || route.pattern.find("/jobs/{id}") == std::string::npos) {
            continue;
        }
        ++seen;
        EXPECT_EQ(order(route.method, route.pattern, id, "bob", Role::submit).status, 403U)
            << route.method << " " << route.pattern;
    }
    EXPECT_GE(seen, 2);
}

TEST_F(Owners, TwoKeysWithOneIdempotencyKeyAreTwoJobs) {
    const auto alices = submit("alice", "/out/a", "once");
    const auto again = submit("alice", "/out/a", "once");
    EXPECT_EQ(again.status, 200U);
    EXPECT_EQ(id_of(again), id_of(alices));
    const auto bobs = submit("bob", "/out/b", "once");
    ASSERT_EQ(bobs.status, 201U) << "not 422, which would tell that the key is used";
    EXPECT_NE(id_of(bobs), id_of(alices));
}

TEST_F(Owners, OthersDoNotSeeWhatAUrlMayHide) {
    auto request = from("alice", Role::submit);
    request.body =
        R"({"student":{"model":"m"},"dataset":{"train":"t.jsonl","sequence_length":16},"training":{"max_steps":1},)"
        R"("teacher":{"endpoints":["http://h:1/v1?key=s3cret"]},"output":"/out/a"})";
    const auto id = id_of(call("POST", "/v1/jobs", std::move(request)));
    const auto shown_to = [&](const std::string& name, Role role) {
        return order("GET", "/v1/jobs/{id}", id, name, role).body;
    };
    EXPECT_THAT(shown_to("alice", Role::submit), HasSubstr("s3cret"));
    EXPECT_THAT(shown_to("root", Role::admin), HasSubstr("s3cret"));
    for (const Role role : {Role::read, Role::submit}) {
        EXPECT_THAT(shown_to("bob", role), Not(HasSubstr("s3cret")));
        EXPECT_THAT(shown_to("bob", role), HasSubstr("http://h:1/v1?"));
    }
    EXPECT_THAT(get("/v1/jobs/{id}", id).body, HasSubstr("s3cret")) << "without keys everybody is the owner";
}

TEST(Submissions, IsAskedForOnceMoreWhenTheJobBegins) {
    const auto led_astray = std::make_shared<std::atomic<bool>>(false);
    const auto policy = [led_astray](const JobSpec&) {
        api::SpecViolations found;
        if (*led_astray) {
            found.violations.push_back({"/output", "path_not_allowed", "a link leads elsewhere now"});
        }
        return found;
    };
    const auto files = [](const JobSpec& spec) { return std::optional(FileRule{.roots = {spec.output, "/"}}); };
    JobManagerOptions options = test::brisk();
    options.policy = policy;
    options.start_policy = policy;
    options.files = files;
    test::World world(options);
    static_cast<void>(world.submit("/out/a"));
    const auto worker = world.fleet.next();
    EXPECT_EQ(worker->start.files.value().roots, (std::vector<std::string>{"/out/a", "/"}));
    const auto second = world.submit("/out/b");  // waits for the slot
    *led_astray = true;
    worker->emit(FinishedEvent{}, worker);
    worker->end(worker);
    const auto job = test::wait_for_state(*world.manager, second, api::JobState::failed);
    EXPECT_EQ(job.status_reason.value().code, "path_not_allowed");
    EXPECT_THAT(job.status_reason.value().message, HasSubstr("/output: a link leads elsewhere now"));
    EXPECT_EQ(world.fleet.count(), 1U) << "no worker was started for it";
    const auto refused = test::await(world.manager->submit({test::spec_text("/out/c"), "", false}));
    EXPECT_EQ(refused.kind, JobVerdict::invalid_spec);
    EXPECT_EQ(refused.violations.violations.at(0).code, "path_not_allowed");
    // A job that has ended goes on only where it may, and that is said before its files are looked for.
    std::filesystem::remove(world.folder.path() / "t.jsonl");
    const auto resumed = test::await(world.manager->command(second, job_verb("resume")));
    EXPECT_EQ(resumed.kind, JobVerdict::not_runnable);
    EXPECT_EQ(resumed.violations.violations.at(0).code, "path_not_allowed");
}

TEST(Submissions, GoOnWhereAnotherJobOfTheirOwnerHasWritten) {
    test::World world(test::brisk());
    std::string id;
    for (int i = 0; i < 2; ++i) {
        SubmitRequest request{test::spec_text("out"), "", false};
        request.owner = http::Caller{"ada", http::Role::submit, "key-a"};
        id = test::await(world.manager->submit(request)).job.id;
        static_cast<void>(world.fleet.next());
        EXPECT_EQ(test::await(world.manager->command(id, job_verb("cancel"))).kind, JobVerdict::accepted);
        static_cast<void>(test::wait_for_state(*world.manager, id, api::JobState::cancelled));
    }
    EXPECT_EQ(test::await(world.manager->command(id, job_verb("resume"))).kind, JobVerdict::accepted);
}

TEST(Submissions, F4WhatTakesLongToJudgeHoldsUpNobody) {
    std::promise<void> asked;
    std::promise<void> release;
    JobManagerOptions options = test::brisk();
    options.policy = [&, released = release.get_future().share()](const JobSpec& spec) {
        if (spec.output == "/out/slow") {
            asked.set_value();
            released.wait();
        }
        return api::SpecViolations();
    };
    test::World world(options);
    std::thread slow([&world] { static_cast<void>(world.submit("/out/slow")); });
    asked.get_future().wait();
    EXPECT_TRUE(test::await(world.manager->ready()));
    EXPECT_NE(world.submit("/out/fast"), "");
    release.set_value();
    slow.join();
}

TEST(Submissions, F5AFolderThatLeadsToAnothersJobByNowFailsTheJob) {
    test::World world(test::brisk());
    const auto& base = world.folder.path();
    const auto first = world.submit((base / "first").string());
    const auto worker = world.fleet.next();
    const auto second = world.submit((base / "second").string());  // waits for the slot
    const auto third = world.submit((base / "third").string());
    std::filesystem::create_directory(base / "third");
    std::filesystem::create_directory_symlink(base / "third", base / "second");
    worker->emit(FinishedEvent{}, worker);
    worker->end(worker);
    const auto job = test::wait_for_state(*world.manager, second, api::JobState::failed);
    EXPECT_THAT(job.status_reason.value().message, HasSubstr("/output: '" + (base / "third").string() + "': job " +
                                                             third + " writes to it and has not ended"));
    EXPECT_EQ(world.fleet.next()->start.job_id, third);
}

TEST(Submissions, F5WhatJobsHaveMadeIsKnownAfterARestart) {
    test::World world(test::brisk());
    const std::string folder = (world.folder.path() / "alice").string();
    std::ofstream(world.folder.path() / "m/config.json") << "{}";
    std::ofstream(world.folder.path() / "m/model.safetensors") << "";
    const auto as = [&](const std::string& owner, bool is_admin) {
        SubmitRequest request{test::spec_text(folder), ""};
        request.dry_run = true;
        request.owner = http::Caller{.name = owner, .id = "key-" + owner};
        request.is_admin = is_admin;
        return test::await(world.manager->submit(request));
    };
    SubmitRequest request{test::spec_text(folder), ""};
    request.owner = http::Caller{.name = "alice", .id = "key-alice"};
    const auto id = test::await(world.manager->submit(request)).job.id;
    const auto worker = world.fleet.next();
    worker->emit(FinishedEvent{}, worker);
    worker->end(worker);
    static_cast<void>(test::wait_for_state(*world.manager, id, api::JobState::succeeded));
    for (int start = 0; start < 2; ++start) {
        const auto refused = as("bob", false);
        EXPECT_EQ(refused.kind, JobVerdict::not_yours);
        EXPECT_EQ(refused.violations.violations.at(0).code, "path_not_allowed");
        EXPECT_EQ(refused.violations.violations.at(0).pointer, "/output");
        EXPECT_THAT(refused.violations.violations.at(0).detail, HasSubstr(id + " of another key has written"));
        EXPECT_EQ(as("alice", false).kind, JobVerdict::valid);
        EXPECT_EQ(as("ops", true).kind, JobVerdict::valid);
        world.manager.reset();
        world.open();
    }
    static_cast<void>(test::await(world.manager->remove(id)));
    EXPECT_EQ(as("bob", false).kind, JobVerdict::valid);
}

}  // namespace
}  // namespace distilld
