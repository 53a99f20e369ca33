#include "server/jobs/routes/history_routes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "tests/unit/server/jobs/routes_fixture.hpp"

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

class HistoryRoutesTest : public test::RoutesTest {};

TEST_F(HistoryRoutesTest, PagesThroughEvents) {
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

TEST_F(HistoryRoutesTest, PagesBackFromTheNewestEvent) {
    const std::string id(body(post(spec_text("a"))).at("id").as_string());
    finish(world_.fleet.next());
    wait_for_state(*world_.manager, id, JobState::succeeded);
    const auto sequences = [&](test::Query query) {
        std::vector<int> found;
        const auto page = body(get("/v1/jobs/{id}/events", id, std::move(query)));
        for (const auto& event : page.at("data").as_array()) {
            found.push_back(event.at("sequence").to_number<int>());
        }
        return std::pair(found, page.at("has_more").as_bool());
    };
    EXPECT_EQ(sequences({{"order", "desc"}, {"limit", "3"}}), std::pair(std::vector{4, 3, 2}, true));
    EXPECT_EQ(sequences({{"order", "desc"}, {"after", "3"}}), std::pair(std::vector{2, 1}, false));
    EXPECT_EQ(sequences({{"order", "desc"}, {"after", "1"}}), std::pair(std::vector<int>(), false));
    EXPECT_EQ(sequences({{"order", "asc"}, {"after", "3"}}), std::pair(std::vector{4}, false));
    EXPECT_EQ(get("/v1/jobs/{id}/events", "nobody", {{"order", "desc"}}).status, 404U);
    for (const char* bad : {"", "DESC", "newest"}) {
        EXPECT_EQ(body(get("/v1/jobs/{id}/events", id, {{"order", bad}})).at("error").at("param").as_string(), "order");
    }
    // A stream goes forward.
    EXPECT_EQ(get("/v1/jobs/{id}/events", id, {{"order", "desc"}}, {{"Accept", "text/event-stream"}}).status, 400U);
}

TEST_F(HistoryRoutesTest, StreamsEventsToTheEnd) {
    const std::string id(body(post(spec_text("a"))).at("id").as_string());
    const auto worker = world_.fleet.next();
    const http::Headers accept{{"Accept", "text/event-stream"}};
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

TEST_F(HistoryRoutesTest, StreamNamesGaps) {
    const std::string id(body(post(spec_text("a"))).at("id").as_string());
    const auto worker = world_.fleet.next();
    worker->emit(progress_at(1, 2), worker);
    finish(worker);
    wait_for_state(*world_.manager, id, JobState::succeeded);
    world_.open_store()->drop_metrics(id, 3);
    auto response = get("/v1/jobs/{id}/events", id, {}, {{"accept", "text/event-stream"}});
    EXPECT_THAT(drain(*response.stream), HasSubstr("event: gap\ndata: {\"from\":3,\"to\":3}\n\nid: 4\n"));
}

TEST(HistoryRoutesHeartbeat, QuietStreamsSayThatTheyLive) {
    JobManagerOptions options;
    options.heartbeat = std::chrono::milliseconds(1);
    World world(options);
    const auto routes = make_job_routes(*world.manager, world.metrics, std::make_shared<JobLogs>(world.folder / "logs"),
                                        test::estimates_here());
    const auto id = world.submit("a");
    world.fleet.next();
    http::Request request;
    request.path_parameters = {{"id", id}};
    request.query = {{"after", "1000"}};
    request.headers = {{"Accept", "text/event-stream"}};
    const auto route =
        std::find_if(routes.begin(), routes.end(), [](const auto& it) { return it.pattern == "/v1/jobs/{id}/events"; });
    const auto response = await(route->handler(request));
    ASSERT_TRUE(response.stream);
    EXPECT_EQ(await(response.stream->next()), ": keep-alive\n\n");
}

TEST_F(HistoryRoutesTest, StreamsEndWhenTheServiceStops) {
    const std::string id(body(post(spec_text("a"))).at("id").as_string());
    world_.fleet.next();
    auto response = get("/v1/jobs/{id}/events", id, {}, {{"accept", "text/event-stream"}});
    await(world_.manager->stop());
    const auto text = drain(*response.stream);
    EXPECT_THAT(text, HasSubstr("service_stopped"));
    EXPECT_EQ(text.find("event: done"), std::string::npos);
}

TEST_F(HistoryRoutesTest, ListsCheckpoints) {
    const auto id = submitted("a");
    EXPECT_TRUE(body(get("/v1/jobs/{id}/checkpoints", id)).at("data").as_array().empty());
    const auto worker = world_.fleet.next();
    worker->emit(CheckpointEvent{10, "/c/10", 0.5, 0}, worker);
    worker->emit(CheckpointEvent{20, "/c/20", 0.25, 4096}, worker);
    finish(worker);
    wait_for_state(*world_.manager, id, JobState::succeeded);
    const auto list = body(get("/v1/jobs/{id}/checkpoints", id));
    EXPECT_EQ(list.at("object").as_string(), "list");
    EXPECT_FALSE(list.at("has_more").as_bool());
    const auto& data = list.at("data").as_array();
    ASSERT_EQ(data.size(), 2U);
    EXPECT_EQ(data[0].at("number").to_number<int>(), 1);
    EXPECT_TRUE(data[0].at("bytes").is_null());
    EXPECT_EQ(data[1].at("number").to_number<int>(), 2);
    EXPECT_EQ(data[1].at("object").as_string(), "job.checkpoint");
    EXPECT_EQ(data[1].at("step").to_number<int>(), 20);
    EXPECT_EQ(data[1].at("folder").as_string(), "/c/20");
    EXPECT_EQ(data[1].at("seconds").to_number<double>(), 0.25);
    EXPECT_EQ(data[1].at("bytes").to_number<int>(), 4096);
    EXPECT_FALSE(data[1].at("created_at").as_string().empty());
    EXPECT_EQ(body(get("/v1/jobs/{id}", id)).at("checkpoints").at(1).at("bytes").to_number<int>(), 4096);
    EXPECT_EQ(get("/v1/jobs/{id}/checkpoints", "nobody").status, 404U);
    const auto first = body(get("/v1/jobs/{id}/checkpoints", id, {{"limit", "1"}}));
    EXPECT_TRUE(first.at("has_more").as_bool());
    EXPECT_EQ(first.at("data").as_array().size(), 1U);
    const auto next = body(get("/v1/jobs/{id}/checkpoints", id, {{"limit", "1"}, {"after", "1"}}));
    EXPECT_FALSE(next.at("has_more").as_bool());
    EXPECT_EQ(next.at("data").at(0).at("number").to_number<int>(), 2);
    EXPECT_TRUE(body(get("/v1/jobs/{id}/checkpoints", id, {{"after", "7"}})).at("data").as_array().empty());
    for (const auto& [name, value] :
         {std::pair{"limit", "0"}, {"limit", "10001"}, {"after", "-1"}, {"order", "desc"}}) {
        EXPECT_EQ(get("/v1/jobs/{id}/checkpoints", id, {{name, value}}).status, 400U) << name << " " << value;
    }
}

TEST(HistoryRoutesMetrics, AreSeriesOverTheSteps) {
    JobManagerOptions options;
    options.metrics_interval = std::chrono::milliseconds(0);
    World world(options);
    const auto routes = make_history_routes(*world.manager);
    const auto id = world.submit("a");
    const auto worker = world.fleet.next();
    for (std::uint64_t step = 1; step <= 9; ++step) {
        worker->emit(progress_at(step, step == 5 ? 100 : 10 - static_cast<double>(step)), worker);
    }
    EvaluationEvent evaluation;
    evaluation.step = 9;
    evaluation.loss = 1.5;
    worker->emit(evaluation, worker);
    FinishedEvent finished;
    finished.last = progress_at(9, 1);
    worker->emit(finished, worker);
    worker->end(worker);
    wait_for_state(*world.manager, id, JobState::succeeded);

    const auto ask = [&](const std::string& job, test::Query query) {
        http::Request request;
        request.path_parameters = {{"id", job}};
        request.query = std::move(query);
        return await(routes.back().handler(std::move(request)));
    };
    const auto whole = ask(id, {{"names", "loss,eval_loss"}});
    EXPECT_EQ(whole.status, 200U);
    EXPECT_EQ(whole.body, R"({"object":"job.metrics","job_id":")" + id +
                              R"(","data":[{"name":"loss","total_points":9,"steps":[1,2,3,4,5,6,7,8,9],)"
                              R"("values":[9,8,7,6,100,4,3,2,1]},)"
                              R"({"name":"eval_loss","total_points":1,"steps":[9],"values":[1.5]}]})");
    const auto thin = json::parse(ask(id, {{"names", "loss"}, {"max_points", "4"}}).body).at("data").at(0);
    EXPECT_EQ(json::serialize(thin.at("steps")), "[1,5,8,9]");
    EXPECT_EQ(thin.at("total_points").to_number<int>(), 9);
    const auto late = json::parse(ask(id, {{"after_step", "8"}}).body).at("data").as_array();
    EXPECT_EQ(late.size(), series_names().size());
    EXPECT_EQ(json::serialize(late.front().at("steps")), "[9]");
    EXPECT_EQ(ask("nobody", {}).status, 404U);
    for (const test::Query& bad :
         {test::Query{{"names", "nothing"}}, test::Query{{"names", ""}}, test::Query{{"names", "loss,"}},
          test::Query{{"max_points", "1"}}, test::Query{{"max_points", "10001"}}, test::Query{{"after_step", "-1"}},
          test::Query{{"limit", "5"}}}) {
        EXPECT_EQ(ask(id, bad).status, 400U) << bad[0].first << "=" << bad[0].second;
    }
    EXPECT_THAT(ask(id, {{"names", "losss"}}).body, HasSubstr("there is no metric 'losss'; there are "));
}

TEST_F(HistoryRoutesTest, AJobWithoutMeasurementsHasEmptySeries) {
    const auto id = submitted("a");
    const auto data = body(get("/v1/jobs/{id}/metrics", id, {{"names", "loss"}})).at("data");
    EXPECT_EQ(json::serialize(data), R"([{"name":"loss","total_points":0,"steps":[],"values":[]}])");
}

}  // namespace
}  // namespace distilld
