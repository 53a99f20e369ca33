#include "server/jobs/routes/job_routes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <limits>

#include "server/jobs/routes/metrics_routes.hpp"
#include "tests/support/paths.hpp"
#include "tests/unit/server/jobs/fake_worker.hpp"
#include "tests/unit/server/jobs/full_disk.hpp"
#include "tests/unit/server/jobs/routes_fixture.hpp"

namespace distilld {
namespace {

using api::JobState;
using test::await;
using test::progress_at;
using test::Query;
using test::spec_text;
using test::wait_for_state;
using test::World;
using ::testing::HasSubstr;
namespace json = boost::json;

class JobRoutesTest : public test::RoutesTest {};

TEST_F(JobRoutesTest, CreatesAJob) {
    const auto response = post(spec_text("out"), {{"Content-Type", "application/json; charset=utf-8"}});
    EXPECT_EQ(response.status, 201U);
    EXPECT_EQ(response.content_type, "application/json");
    const auto job = body(response);
    const std::string id(job.at("id").as_string());
    EXPECT_EQ(response.headers, (http::Headers{{"Location", "/v1/jobs/" + id}}));
    EXPECT_EQ(job.at("state").as_string(), "queued");
    EXPECT_EQ(job.at("spec").at("output").as_string(), "out");
    EXPECT_EQ(job.at("resolved_spec").at("training").at("learning_rate").to_number<double>(), 1e-4);
    EXPECT_TRUE(api::job_from_json(job));
    const auto one = get("/v1/jobs/{id}", id);
    EXPECT_EQ(one.status, 200U);
    EXPECT_EQ(body(one).at("id").as_string(), id);
}

TEST_F(JobRoutesTest, RefusesWhatIsWrong) {
    const auto bad = post(R"({"student":{},"bogus":1})");
    EXPECT_EQ(bad.status, 400U);
    EXPECT_EQ(code(bad), "invalid_job_spec");
    EXPECT_GE(body(bad).at("errors").as_array().size(), 5U);
    EXPECT_EQ(body(bad).at("errors").at(0).at("pointer").as_string(), "/student/model");
    EXPECT_EQ(post("{").status, 400U);
    EXPECT_EQ(body(post("{")).at("errors").at(0).at("code").as_string(), "malformed_json");
    EXPECT_EQ(post(spec_text("x"), {}, {{"dryrun", "true"}}).status, 400U);
    EXPECT_EQ(post(spec_text("x"), {}, {{"dry_run", "yes"}}).status, 400U);
    EXPECT_EQ(post(spec_text("x"), {{"Idempotency-Key", ""}}).status, 400U);
    EXPECT_TRUE(body(get("/v1/jobs")).at("data").as_array().empty());
}

TEST_F(JobRoutesTest, RefusesASpecThatNamesWhatIsNotThere) {
    std::filesystem::remove(world_.folder.path() / "m");
    std::filesystem::remove(world_.folder.path() / "t.jsonl");
    for (const char* dry_run : {"false", "true"}) {
        const auto refused = post(spec_text("out"), {}, {{"dry_run", dry_run}});
        EXPECT_EQ(refused.status, 400U);
        const auto errors = body(refused).at("errors").as_array();
        ASSERT_EQ(errors.size(), 2U) << refused.body;
        EXPECT_EQ(errors.at(0).at("pointer").as_string(), "/student/model");
        EXPECT_EQ(errors.at(1).at("pointer").as_string(), "/dataset/train");
        EXPECT_EQ(errors.at(1).at("code").as_string(), "not_found");
    }
    EXPECT_TRUE(body(get("/v1/jobs")).at("data").as_array().empty());
}

TEST_F(JobRoutesTest, ValidatesOnly) {
    const auto without_model = post(spec_text("out"), {}, {{"dry_run", "true"}});
    EXPECT_EQ(without_model.status, 400U);
    EXPECT_EQ(body(without_model).at("errors").at(0).at("pointer").as_string(), "/student/model");
    std::ofstream(world_.folder.path() / "m/config.json") << "{}";
    std::ofstream(world_.folder.path() / "m/model.safetensors") << "";
    const auto response = post(spec_text("out"), {}, {{"dry_run", "true"}});
    EXPECT_EQ(response.status, 200U);
    EXPECT_TRUE(body(response).at("valid").as_bool());
    EXPECT_EQ(body(response).at("resolved_spec").at("name").as_string(), "test");
    EXPECT_TRUE(body(get("/v1/jobs")).at("data").as_array().empty());
}

TEST_F(JobRoutesTest, KeepsIdempotencyKeys) {
    const auto first = post(spec_text("a"), {{"Idempotency-Key", "k1"}});
    const auto second = post(spec_text("a"), {{"idempotency-key", "k1"}});
    EXPECT_EQ(first.status, 201U);
    EXPECT_EQ(second.status, 200U);
    EXPECT_EQ(body(first).at("id"), body(second).at("id"));
    const auto other = post(spec_text("b"), {{"X-Idempotency-Key", "k1"}});
    EXPECT_EQ(other.status, 422U);
    EXPECT_EQ(code(other), "idempotency_key_reused");
}

TEST_F(JobRoutesTest, RefusesAnOutputInUse) {
    EXPECT_EQ(post(spec_text("a")).status, 201U);
    const auto second = post(spec_text("a"));
    EXPECT_EQ(second.status, 409U);
    EXPECT_EQ(code(second), "output_in_use");
    EXPECT_EQ(body(second).at("errors").at(0).at("pointer").as_string(), "/output");
}

TEST_F(JobRoutesTest, ListsInPages) {
    std::vector<std::string> ids;
    for (const auto* name : {"a", "b", "c"}) {
        ids.emplace_back(body(post(spec_text(name))).at("id").as_string());
    }
    const auto first = body(get("/v1/jobs", "", {{"limit", "2"}}));
    EXPECT_TRUE(first.at("has_more").as_bool());
    EXPECT_EQ(first.at("first_id").as_string(), ids[2]);
    EXPECT_EQ(first.at("last_id").as_string(), ids[1]);
    EXPECT_FALSE(first.at("data").at(0).as_object().contains("spec"));
    const auto second = body(get("/v1/jobs", "", {{"limit", "2"}, {"after", ids[1]}}));
    EXPECT_FALSE(second.at("has_more").as_bool());
    EXPECT_EQ(second.at("data").as_array().size(), 1U);
    EXPECT_EQ(body(get("/v1/jobs", "", {{"state", "failed"}})).at("data").as_array().size(), 0U);
    EXPECT_TRUE(body(get("/v1/jobs", "", {{"state", "failed"}})).at("first_id").is_null());
    EXPECT_EQ(body(get("/v1/jobs", "", {{"name", "test"}, {"limit", "2"}})).at("last_id").as_string(), ids[1]);
    EXPECT_TRUE(body(get("/v1/jobs", "", {{"name", "tes"}})).at("data").as_array().empty());
    for (const Query& bad :
         {Query{{"limit", "0"}}, Query{{"limit", "101"}}, Query{{"limit", "x"}}, Query{{"limit", "1"}, {"limit", "2"}},
          Query{{"state", "sleeping"}}, Query{{"after", "nobody"}}, Query{{"order", "asc"}}, Query{{"name", ""}}}) {
        EXPECT_EQ(get("/v1/jobs", "", bad).status, 400U) << bad[0].first << "=" << bad[0].second;
    }
}

TEST_F(JobRoutesTest, CancelsOnlyWhatHasNotEnded) {
    EXPECT_EQ(cancel("nobody").status, 404U);
    EXPECT_EQ(code(get("/v1/jobs/{id}", "nobody")), "job_not_found");
    const std::string id(body(post(spec_text("a"))).at("id").as_string());
    world_.fleet.next();
    const auto accepted = cancel(id);
    EXPECT_EQ(accepted.status, 202U);
    EXPECT_TRUE(body(accepted).at("cancel_requested").as_bool());
    wait_for_state(*world_.manager, id, JobState::cancelled);
    const auto refused = cancel(id);
    EXPECT_EQ(refused.status, 409U);
    EXPECT_THAT(std::string(body(refused).at("detail").as_string()), HasSubstr("cancelled"));
}

TEST_F(JobRoutesTest, DeletesOnlyWhatHasEnded) {
    EXPECT_EQ(remove("nobody").status, 404U);
    const auto id = submitted("a");
    const auto other = submitted("b");
    const auto worker = world_.fleet.next();
    for (const auto& one : {id, other}) {
        const auto refused = remove(one);
        EXPECT_EQ(refused.status, 409U);
        EXPECT_EQ(code(refused), "job_is_not_terminal");
        EXPECT_THAT(std::string(body(refused).at("detail").as_string()),
                    HasSubstr(one == id ? "running" : "waiting in the queue"));
    }
    worker->emit(CheckpointEvent{10, "/c/10", 0.5, 1}, worker);
    finish(worker);
    wait_for_state(*world_.manager, id, JobState::succeeded);
    const auto removed = remove(id);
    EXPECT_EQ(removed.status, 200U);
    EXPECT_EQ(removed.body, R"({"id":")" + id + R"(","object":"job","deleted":true})");
    for (const auto* pattern : {"/v1/jobs/{id}", "/v1/jobs/{id}/events", "/v1/jobs/{id}/metrics"}) {
        EXPECT_EQ(get(pattern, id).status, 404U) << pattern;
    }
    EXPECT_EQ(get("/v1/jobs/{id}/events", id, {}, {{"Accept", "text/event-stream"}}).status, 404U);
    EXPECT_EQ(body(get("/v1/jobs")).at("data").as_array().size(), 1U);
    EXPECT_EQ(remove(id).status, 404U);
    EXPECT_THAT(get("/metrics").body, HasSubstr("distilld_jobs{state=\"succeeded\"} 0\n"));
    // What it wrote to is free for the next.
    EXPECT_EQ(post(spec_text("a")).status, 201U);
}

TEST_F(JobRoutesTest, DeletedJobsStayAwayAfterARestart) {
    const auto id = submitted("a");
    finish(world_.fleet.next());
    wait_for_state(*world_.manager, id, JobState::succeeded);
    EXPECT_EQ(remove(id).status, 200U);
    await(world_.manager->stop());
    world_.manager.reset();
    world_.open();
    routes_ = make_job_routes(*world_.manager, world_.metrics, logs_, test::estimates_here());
    EXPECT_EQ(get("/v1/jobs/{id}", id).status, 404U);
}

TEST_F(JobRoutesTest, TellsOfItself) {
    EXPECT_EQ(get("/healthz").status, 200U);
    EXPECT_EQ(get("/readyz").status, 200U);
    EXPECT_FALSE(body(get("/version")).at("version").as_string().empty());
    const auto metrics = get("/metrics");
    EXPECT_EQ(metrics.content_type, "text/plain; version=0.0.4; charset=utf-8");
    EXPECT_THAT(metrics.body, HasSubstr("# HELP distilld_jobs "));
    await(world_.manager->stop());
    EXPECT_EQ(get("/healthz").status, 200U);
    EXPECT_EQ(get("/readyz").status, 503U);
    const auto refused = post(spec_text("z"));
    EXPECT_EQ(refused.status, 503U);
    EXPECT_EQ(refused.headers, (http::Headers{{"Retry-After", "10"}}));
}

TEST_F(JobRoutesTest, SaysThatTheDiskIsFull) {
    auto options = test::brisk();
    options.store_retry = std::chrono::milliseconds(1);
    World world(options);
    const auto ended = world.submit("ended");
    finish(world.fleet.next());
    wait_for_state(*world.manager, ended, JobState::succeeded);
    await(world.manager->stop());
    world.manager.reset();
    const auto full = std::make_shared<std::atomic<bool>>(true);
    world.open(std::make_unique<test::FullDisk>(world.open_store(), full), world.fleet.factory());
    routes_ = make_job_routes(*world.manager, world.metrics, std::make_shared<JobLogs>(world.folder / "logs"),
                              test::estimates_here());
    // It is what a submission would be told, before there was one.
    const auto unready = get("/readyz");
    EXPECT_EQ(unready.status, 503U);
    EXPECT_EQ(code(unready), "store_unavailable");
    const auto refused = post(spec_text("z"));
    EXPECT_EQ(refused.status, 503U);
    EXPECT_EQ(code(refused), "store_unavailable");
    EXPECT_EQ(refused.headers, (http::Headers{{"Retry-After", "10"}}));
    EXPECT_EQ(unready.headers, refused.headers);
    EXPECT_EQ(get("/healthz").status, 200U);
    EXPECT_THAT(unready.body, HasSubstr("database or disk is full"));
    EXPECT_EQ(get("/v1/jobs").status, 200U);
    const auto kept = remove(ended);
    EXPECT_EQ(kept.status, 503U);
    EXPECT_EQ(code(kept), "store_unavailable");
    *full = false;
    while (get("/readyz").status != 200U) {
    }
    EXPECT_EQ(post(spec_text("z")).status, 201U);
    EXPECT_EQ(remove(ended).status, 200U);
}

TEST_F(JobRoutesTest, F12SaysThatTheStoreWasDeletedOrReplaced) {
    auto options = test::brisk();
    options.store_retry = std::chrono::milliseconds(1);
    World world(options);
    routes_ = make_job_routes(*world.manager, world.metrics, std::make_shared<JobLogs>(world.folder / "logs"),
                              test::estimates_here());
    const auto ready = [&] { return get("/readyz").status == 200U; };
    EXPECT_TRUE(ready());
    for (const char* name : {"jobs.sqlite", "jobs.sqlite-wal"}) {
        const auto file = world.folder / name;
        std::filesystem::rename(file, world.folder / "aside");
        std::ofstream(file) << "";
        const auto refused = post(spec_text("z"));
        EXPECT_EQ(refused.status, 503U) << name;
        EXPECT_EQ(code(refused), "store_unavailable");
        const auto unready = get("/readyz");
        EXPECT_EQ(unready.status, 503U);
        EXPECT_THAT(unready.body, HasSubstr("was deleted or replaced while in use"));
        std::filesystem::remove(file);
        EXPECT_EQ(post(spec_text("z")).status, 503U) << "one that is not there is no better";
        std::filesystem::rename(world.folder / "aside", file);
        while (!ready()) {
        }
    }
    EXPECT_EQ(post(spec_text("z")).status, 201U);
}

TEST_F(JobRoutesTest, ChangesAndJobsAreNotForStrangers) {
    for (const auto& route : routes_) {
        const bool open = route.pattern == "/healthz" || route.pattern == "/readyz" || route.pattern == "/metrics";
        EXPECT_EQ(route.any_host, open) << route.pattern;
        EXPECT_TRUE(route.json_body || route.method == "GET") << route.pattern;
        EXPECT_FALSE(route.vital && (route.method != "GET" || route.pattern.ends_with("/events"))) << route.pattern;
    }
}

TEST_F(JobRoutesTest, ContractSaysTypesAndBounds) {
    const auto contract = get("/openapi.yaml");
    EXPECT_EQ(contract.content_type, "application/yaml");
    EXPECT_THAT(contract.body, HasSubstr("application/yaml:"));
    const auto events = contract.body.find("\n  /v1/jobs/{id}/events:\n");
    const auto end = contract.body.find("\n  /", events + 3);
    const std::string bound = "maximum: " + std::to_string(std::numeric_limits<std::int64_t>::max());
    const auto first = contract.body.find(bound, events);
    EXPECT_LT(first, end);
    EXPECT_LT(contract.body.find(bound, first + 1), end);
    // What the routes refuse above it.
    EXPECT_EQ(get("/v1/jobs/{id}/events", "any", {{"after", "9223372036854775808"}}).status, 400U);
    EXPECT_EQ(get("/v1/jobs/{id}/events", "any", {{"after", "9223372036854775807"}}).status, 404U);
}

TEST_F(JobRoutesTest, ContractNamesEveryRoute) {
    const auto contract = get("/openapi.yaml").body;
    std::ifstream file(test::source_dir() / "api/openapi.yaml");
    const std::string on_disk{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(contract, on_disk);
    for (const auto& route : routes_) {
        const auto path = contract.find("\n  " + route.pattern + ":\n");
        ASSERT_NE(path, std::string::npos) << route.pattern;
        const auto end = contract.find("\n  /", path + 3);
        std::string verb = "\n    " + route.method + ":";
        std::transform(verb.begin(), verb.end(), verb.begin(), [](unsigned char c) { return std::tolower(c); });
        EXPECT_LT(contract.find(verb, path), end) << route.method << " " << route.pattern;
    }
}

TEST_F(JobRoutesTest, ObserverFeedsTheMetrics) {
    const auto observer = make_metrics_observer(world_.metrics);
    observer("GET", "/healthz", 200, std::chrono::milliseconds(1));
    EXPECT_THAT(get("/metrics").body,
                HasSubstr("distilld_http_requests_total{code=\"200\",method=\"GET\",route=\"/healthz\"} 1\n"));
}

/// A service whose queue has room for one.
class FullQueue : public test::RoutesTest {
  protected:
    FullQueue() {
        world_.options_.max_queued = 1;
        await(world_.manager->stop());
        world_.open();
        routes_ = make_job_routes(*world_.manager, world_.metrics, logs_, test::estimates_here());
    }
};

TEST_F(FullQueue, IsToldToWhoSubmits) {
    submitted("running");
    world_.fleet.next();
    submitted("waits");
    const auto refused = post(test::spec_text("more"));
    EXPECT_EQ(refused.status, 429U);
    EXPECT_EQ(code(refused), "queue_full");
    EXPECT_EQ(refused.headers.back(), (std::pair<std::string, std::string>("Retry-After", "30")));
    std::ofstream(world_.folder.path() / "m/config.json") << "{}";
    std::ofstream(world_.folder.path() / "m/model.safetensors") << "";
    EXPECT_EQ(post(test::spec_text("more"), {}, {{"dry_run", "true"}}).status, 200U) << "it would not wait";
}

}  // namespace
}  // namespace distilld
