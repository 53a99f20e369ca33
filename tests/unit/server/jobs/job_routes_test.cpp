#include "server/jobs/job_routes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <filesystem>
#include <fstream>
#include <limits>

#include "server/jobs/metrics_routes.hpp"
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
using ::testing::HasSubstr;
namespace json = boost::json;

using Query = std::vector<std::pair<std::string, std::string>>;

JobManagerOptions brisk() {
    JobManagerOptions options;
    options.metrics_interval = std::chrono::hours(1);
    return options;
}

class JobRoutesTest : public ::testing::Test {
  protected:
    api::Response call(const std::string& method, const std::string& pattern, api::Request request = {}) {
        for (const auto& route : routes_) {
            if (route.method != method || route.pattern != pattern) {
                continue;
            }
            request.method = method;
            if (request.path.empty()) {
                request.path = pattern;
            }
            return await(route.handler(std::move(request)));
        }
        throw std::runtime_error("no route " + method + " " + pattern);
    }
    api::Response post(const std::string& body, api::Headers headers = {}, Query query = {}) {
        api::Request request;
        request.body = body;
        request.headers = std::move(headers);
        request.query = std::move(query);
        return call("POST", "/v1/jobs", std::move(request));
    }
    api::Response get(const std::string& pattern, const std::string& id = "", Query query = {},
                      api::Headers headers = {}) {
        api::Request request;
        request.path_parameters = {{"id", id}};
        request.query = std::move(query);
        request.headers = std::move(headers);
        return call("GET", pattern, std::move(request));
    }
    api::Response cancel(const std::string& id) {
        api::Request request;
        request.path_parameters = {{"id", id}};
        return call("POST", "/v1/jobs/{id}/cancel", std::move(request));
    }
    static json::value body(const api::Response& response) { return json::parse(response.body); }
    static std::string code(const api::Response& response) {
        EXPECT_EQ(response.content_type, "application/problem+json");
        return std::string(body(response).at("error").at("code").as_string());
    }
    static std::string drain(api::BodyStream& stream) {
        std::string text;
        while (auto piece = await(stream.next())) {
            EXPECT_FALSE(piece->empty());
            text += *piece;
        }
        return text;
    }
    void finish(const test::Control& worker) {
        FinishedEvent event;
        event.last = progress_at(10, 1);
        worker->emit(event, worker);
        worker->end(worker);
    }

    World world_{brisk()};
    std::vector<http::Route> routes_ = make_job_routes(*world_.manager, world_.metrics);
};

TEST_F(JobRoutesTest, CreatesAJob) {
    const auto response = post(spec_text("out"), {{"Content-Type", "application/json; charset=utf-8"}});
    EXPECT_EQ(response.status, 201U);
    EXPECT_EQ(response.content_type, "application/json");
    const auto job = body(response);
    const std::string id(job.at("id").as_string());
    EXPECT_EQ(response.headers, (api::Headers{{"Location", "/v1/jobs/" + id}}));
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
    for (const Query& bad :
         {Query{{"limit", "0"}}, Query{{"limit", "101"}}, Query{{"limit", "x"}}, Query{{"limit", "1"}, {"limit", "2"}},
          Query{{"state", "paused"}}, Query{{"after", "nobody"}}, Query{{"order", "asc"}}}) {
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

TEST_F(JobRoutesTest, PagesThroughEvents) {
    const std::string id(body(post(spec_text("a"))).at("id").as_string());
    finish(world_.fleet.next());
    wait_for_state(*world_.manager, id, JobState::succeeded);
    const auto first = body(get("/v1/jobs/{id}/events", id, {{"limit", "2"}}));
    EXPECT_TRUE(first.at("has_more").as_bool());
    EXPECT_EQ(first.at("data").at(1).at("sequence").to_number<int>(), 2);
    const auto rest = body(get("/v1/jobs/{id}/events", id, {{"after", "2"}}));
    EXPECT_FALSE(rest.at("has_more").as_bool());
    EXPECT_EQ(rest.at("data").as_array().size(), 2U);
    EXPECT_EQ(get("/v1/jobs/{id}/events", "nobody").status, 404U);
    EXPECT_EQ(get("/v1/jobs/{id}/events", id, {{"after", "-1"}}).status, 400U);
    EXPECT_EQ(get("/v1/jobs/{id}/events", id, {{"limit", "1001"}}).status, 400U);
}

TEST_F(JobRoutesTest, StreamsEventsToTheEnd) {
    const std::string id(body(post(spec_text("a"))).at("id").as_string());
    const auto worker = world_.fleet.next();
    const api::Headers accept{{"Accept", "text/event-stream"}};
    auto response = get("/v1/jobs/{id}/events", id, {}, accept);
    EXPECT_EQ(response.status, 200U);
    EXPECT_EQ(response.content_type, "text/event-stream");
    ASSERT_TRUE(response.stream);
    const auto opening = await(response.stream->next());
    ASSERT_TRUE(opening);
    EXPECT_THAT(*opening, ::testing::StartsWith("id: 1\nevent: state\ndata: {"));
    EXPECT_THAT(*opening, HasSubstr("\n\nid: 2\nevent: state\ndata: {"));
    worker->emit(progress_at(1, 2), worker);
    EXPECT_THAT(*await(response.stream->next()), ::testing::StartsWith("id: 3\nevent: metrics\ndata: {"));
    finish(worker);
    const auto rest = drain(*response.stream);
    EXPECT_THAT(rest, HasSubstr("id: 5\nevent: state\n"));
    const auto done = rest.find("event: done\ndata: ");
    ASSERT_NE(done, std::string::npos);
    const auto job = json::parse(rest.substr(done + 18, rest.find('\n', done + 18) - done - 18));
    EXPECT_EQ(job.at("state").as_string(), "succeeded");
    EXPECT_TRUE(rest.ends_with("\n\n"));

    // Who comes back gets only what is new; Last-Event-ID goes before ?after=.
    auto again =
        get("/v1/jobs/{id}/events", id, {{"after", "1"}}, {{"accept", "text/event-stream"}, {"Last-Event-ID", "4"}});
    EXPECT_THAT(drain(*again.stream), ::testing::StartsWith("id: 5\n"));
    auto after = get("/v1/jobs/{id}/events", id, {{"after", "3"}}, accept);
    EXPECT_THAT(drain(*after.stream), ::testing::StartsWith("id: 4\n"));
    // In vain it would start again from the first event; pages know it as well.
    for (const char* bad : {"x", "-1", "1.5", " 4", "9223372036854775808"}) {
        for (const char* form : {"text/event-stream", "application/json"}) {
            const auto refused = get("/v1/jobs/{id}/events", id, {}, {{"Accept", form}, {"Last-Event-ID", bad}});
            EXPECT_EQ(refused.status, 400U) << bad;
            EXPECT_EQ(body(refused).at("error").at("param").as_string(), "Last-Event-ID");
            EXPECT_THAT(std::string(body(refused).at("detail").as_string()), HasSubstr("Last-Event-ID"));
        }
    }
    const auto page = body(get("/v1/jobs/{id}/events", id, {{"after", "1"}}, {{"Last-Event-ID", "4"}}));
    EXPECT_EQ(page.at("data").at(0).at("sequence").to_number<int>(), 5);
    EXPECT_EQ(get("/v1/jobs/{id}/events", "nobody", {}, accept).status, 404U);
}

TEST_F(JobRoutesTest, StreamNamesGaps) {
    const std::string id(body(post(spec_text("a"))).at("id").as_string());
    const auto worker = world_.fleet.next();
    worker->emit(progress_at(1, 2), worker);
    finish(worker);
    wait_for_state(*world_.manager, id, JobState::succeeded);
    world_.open_store()->drop_metrics(id, 3);
    auto response = get("/v1/jobs/{id}/events", id, {}, {{"accept", "text/event-stream"}});
    EXPECT_THAT(drain(*response.stream), HasSubstr("event: gap\ndata: {\"from\":3,\"to\":3}\n\nid: 4\n"));
}

TEST(JobRoutesHeartbeat, QuietStreamsSayThatTheyLive) {
    JobManagerOptions options;
    options.heartbeat = std::chrono::milliseconds(1);
    World world(options);
    const auto routes = make_job_routes(*world.manager, world.metrics);
    const auto id = world.submit("a");
    world.fleet.next();
    api::Request request;
    request.path_parameters = {{"id", id}};
    request.query = {{"after", "1000"}};
    request.headers = {{"Accept", "text/event-stream"}};
    const auto response = await(routes.at(4).handler(request));
    ASSERT_TRUE(response.stream);
    EXPECT_EQ(await(response.stream->next()), ": keep-alive\n\n");
}

TEST_F(JobRoutesTest, StreamsEndWhenTheServiceStops) {
    const std::string id(body(post(spec_text("a"))).at("id").as_string());
    world_.fleet.next();
    auto response = get("/v1/jobs/{id}/events", id, {}, {{"accept", "text/event-stream"}});
    await(world_.manager->stop());
    const auto text = drain(*response.stream);
    EXPECT_THAT(text, HasSubstr("service_stopped"));
    EXPECT_EQ(text.find("event: done"), std::string::npos);
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
    EXPECT_EQ(refused.headers, (api::Headers{{"Retry-After", "10"}}));
}

TEST_F(JobRoutesTest, SaysThatTheDiskIsFull) {
    auto options = brisk();
    options.store_retry = std::chrono::milliseconds(1);
    World world(options);
    await(world.manager->stop());
    world.manager.reset();
    const auto full = std::make_shared<std::atomic<bool>>(true);
    world.open(std::make_unique<test::FullDisk>(world.open_store(), full), world.fleet.factory());
    routes_ = make_job_routes(*world.manager, world.metrics);
    // It is what a submission would be told, before there was one.
    const auto unready = get("/readyz");
    EXPECT_EQ(unready.status, 503U);
    EXPECT_EQ(code(unready), "store_unavailable");
    const auto refused = post(spec_text("z"));
    EXPECT_EQ(refused.status, 503U);
    EXPECT_EQ(code(refused), "store_unavailable");
    EXPECT_EQ(refused.headers, (api::Headers{{"Retry-After", "10"}}));
    EXPECT_EQ(unready.headers, refused.headers);
    EXPECT_EQ(get("/healthz").status, 200U);
    EXPECT_THAT(unready.body, HasSubstr("database or disk is full"));
    EXPECT_EQ(get("/v1/jobs").status, 200U);
    *full = false;
    while (get("/readyz").status != 200U) {
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
    std::ifstream file(DISTILLD_SOURCE_DIR "/api/openapi.yaml");
    const std::string on_disk{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(contract, on_disk);
    for (const auto& route : routes_) {
        const auto path = contract.find("\n  " + route.pattern + ":\n");
        ASSERT_NE(path, std::string::npos) << route.pattern;
        const auto end = contract.find("\n  /", path + 3);
        const auto verb = route.method == "GET" ? "\n    get:" : "\n    post:";
        EXPECT_LT(contract.find(verb, path), end) << route.method << " " << route.pattern;
    }
}

TEST_F(JobRoutesTest, ObserverFeedsTheMetrics) {
    const auto observer = make_metrics_observer(world_.metrics);
    observer("GET", "/healthz", 200, std::chrono::milliseconds(1));
    EXPECT_THAT(get("/metrics").body,
                HasSubstr("distilld_http_requests_total{code=\"200\",method=\"GET\",route=\"/healthz\"} 1\n"));
}

}  // namespace
}  // namespace distilld
