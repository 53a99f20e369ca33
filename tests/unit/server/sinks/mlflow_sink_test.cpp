#include "server/sinks/registry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <limits>

#include "server/sinks/mlflow_messages.hpp"
#include "tests/support/scripted_http_server.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/server/sinks/sink_probe.hpp"

namespace distilld::sinks {
namespace {

using test::item;
using test::ScriptedReply;
using test::SeenRequest;
using test::started;
using test::step;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;

/// Answers as MLflow 3.17 does; tests/e2e/test_sinks.py asks a real one.
class MlflowSink : public ::testing::Test {
  protected:
    SinkContext context(std::map<std::string, std::string> environment = {}) const {
        SinkContext made = test::context_of(folder_.path().string(), std::move(environment));
        made.spec.metrics.mlflow_url = server_.url();
        return made;
    }

    ScriptedReply answer(const SeenRequest& request) {
        ScriptedReply reply;
        if (const auto scripted = script_.find(page(request)); scripted != script_.end() && !scripted->second.empty()) {
            reply = scripted->second.front();
            scripted->second.erase(scripted->second.begin());
            return reply;
        }
        if (page(request) == "experiments/get-by-name") {
            reply.body = R"({"experiment":{"experiment_id":"7"}})";
        } else if (page(request) == "runs/create") {
            reply.body = R"({"run":{"info":{"run_id":"r1"}}})";
        } else {
            reply.body = "{}";
        }
        return reply;
    }
    static std::string page(const SeenRequest& request) {
        const std::string path = request.target.substr(0, request.target.find('?'));
        EXPECT_TRUE(path.starts_with("/api/2.0/mlflow/")) << path;
        return path.substr(std::string("/api/2.0/mlflow/").size());
    }
    std::vector<std::string> pages() const {
        std::vector<std::string> seen;
        for (const SeenRequest& request : server_.requests()) {
            seen.push_back(page(request));
        }
        return seen;
    }
    /// "key@step" of all metrics that were sent.
    std::vector<std::string> metrics() const {
        std::vector<std::string> sent;
        for (const SeenRequest& request : server_.requests()) {
            const auto body = boost::json::parse(request.body.empty() ? "{}" : request.body);
            if (const auto* list = body.as_object().if_contains("metrics")) {
                for (const auto& metric : list->as_array()) {
                    sent.push_back(std::string(metric.at("key").as_string()) + "@" +
                                   std::to_string(metric.at("step").to_number<int>()));
                }
            }
        }
        return sent;
    }

    test::TemporaryFolder folder_;
    std::map<std::string, std::vector<ScriptedReply>> script_;
    test::ScriptedHttpServer server_{[this](const SeenRequest& request) { return answer(request); }};
};

ScriptedReply status(unsigned code, std::string body = "") {
    ScriptedReply reply;
    reply.status = code;
    reply.body = std::move(body);
    return reply;
}

TEST_F(MlflowSink, ARunIsMadeDescribedToldAndEnded) {
    script_["experiments/get-by-name"] = {status(404, R"({"error_code":"RESOURCE_DOES_NOT_EXIST"})")};
    script_["experiments/create"] = {status(200, R"({"experiment_id":"9"})")};
    test::SinkProbe sink(make_mlflow_sink, context({{"MLFLOW_EXPERIMENT_NAME", "my team"}}));
    sink.write({item(started()), item(step(1)), item(EvaluationEvent{1, 0.5, 3, 0.25, 0.75, 0.875}),
                item(FiguresEvent{1, {{"results/acc", 0.5}}, 2}), item(FiguresEvent{1, {}, 2, "it failed"})})
        .value();
    sink.write({item(step(2)), item(test::ended(EndRecord::Status::cancelled, 2))}).value();
    EXPECT_THAT(pages(), ElementsAre("experiments/get-by-name", "experiments/create", "runs/create", "runs/log-batch",
                                     "runs/log-batch", "runs/log-batch", "runs/update"));
    const auto requests = server_.requests();
    EXPECT_THAT(requests[0].target, HasSubstr("experiment_name=my%20team"));
    EXPECT_THAT(requests[2].body, HasSubstr(R"({"experiment_id":"9","run_name":"a job","start_time":1700000000000,)"));
    EXPECT_THAT(requests[3].body, HasSubstr(R"({"key":"training.learning_rate","value":"0.0001"})"));
    EXPECT_THAT(requests[4].body, HasSubstr(R"({"key":"loss","value":1.5,"timestamp":1700000000000,"step":1})"));
    EXPECT_THAT(metrics(), AllOf(Contains("eval_loss@1"), Contains("eval_kl@1"), Contains("eval_top1_agreement@1"),
                                 Contains("eval_acceptance_rate@1"), Contains("figures/results/acc@1")));
    EXPECT_THAT(requests[6].body, HasSubstr(R"("status":"KILLED","end_time":1700000000000)"));
    EXPECT_EQ(test::read_bytes(folder_ / kMlflowRunFile),
              R"({"server":")" + server_.url() + R"(","run_id":"r1"})" + "\n");
}

TEST_F(MlflowSink, AnInterruptedRunGoesOnAsTheSameWithoutWhatTheServerHas) {
    {
        test::SinkProbe(make_mlflow_sink, context()).write({item(started()), item(step(1))}).value();
    }
    SinkContext again = context();
    again.first_step = 1;
    again.goes_on = true;
    script_["runs/get"] = {status(200,
                                  R"({"run":{"info":{"run_id":"r1","lifecycle_stage":"active"},"data":{"metrics":[)"
                                  R"({"key":"loss","value":1,"timestamp":1,"step":"3"}],"params":[)"
                                  R"({"key":"training.learning_rate","value":"1"}]}}})")};
    const std::size_t before = server_.requests().size();
    test::SinkProbe(make_mlflow_sink, again)
        .write({item(started(1)), item(step(2)), item(step(3)), item(step(4))})
        .value();
    auto seen = pages();
    seen.erase(seen.begin(), seen.begin() + static_cast<std::ptrdiff_t>(before));
    EXPECT_THAT(seen, ElementsAre("runs/get", "runs/update", "runs/log-batch", "runs/log-batch"));
    EXPECT_THAT(server_.requests()[before].target, HasSubstr("run_id=r1"));
    EXPECT_THAT(server_.requests()[before + 2].body, Not(HasSubstr("training.learning_rate")));
    const auto sent = metrics();
    EXPECT_EQ(std::ranges::count(sent, "loss@2") + std::ranges::count(sent, "loss@3"), 0);
    EXPECT_EQ(std::ranges::count(sent, "loss@4"), 1);
    EXPECT_EQ(std::ranges::count(sent, "kd_loss@2"), 1) << "the server has none of these";
}

TEST_F(MlflowSink, ARunThatTheServerHasNoMoreIsMadeAnew) {
    {
        test::SinkProbe(make_mlflow_sink, context()).write({item(started())}).value();
    }
    SinkContext again = context();
    again.goes_on = true;
    script_["runs/get"] = {status(404)};
    script_["runs/create"] = {status(200, R"({"run":{"info":{"run_id":"r2"}}})")};
    test::SinkProbe(make_mlflow_sink, again).write({item(started())}).value();
    EXPECT_THAT(test::read_bytes(folder_ / kMlflowRunFile), HasSubstr("r2"));
}

TEST_F(MlflowSink, WhatWasDoneIsNotDoneAgainAfterAFailure) {
    script_["runs/log-batch"] = {status(200), status(503)};
    test::SinkProbe sink(make_mlflow_sink, context());
    const auto failed = sink.write({item(started()), item(step(1))});
    ASSERT_FALSE(failed);
    EXPECT_FALSE(failed.error().for_good);
    EXPECT_THAT(failed.error().message, HasSubstr("/api/2.0/mlflow/runs/log-batch: HTTP 503"));
    sink.write({item(started()), item(step(1))}).value();
    EXPECT_THAT(pages(), ElementsAre("experiments/get-by-name", "runs/create", "runs/log-batch", "runs/log-batch",
                                     "runs/log-batch"));
}

TEST_F(MlflowSink, AnotherJobMayMakeTheExperimentMeanwhile) {
    script_["experiments/get-by-name"] = {status(404)};
    script_["experiments/create"] = {status(400, R"({"error_code":"RESOURCE_ALREADY_EXISTS","message":"there"})")};
    test::SinkProbe sink(make_mlflow_sink, context());
    const auto failed = sink.write({item(started())});
    ASSERT_FALSE(failed);
    EXPECT_FALSE(failed.error().for_good);
    sink.write({item(started())}).value();
}

TEST_F(MlflowSink, WhoAsksIsSaidByTheEnvironment) {
    {
        test::SinkProbe sink(make_mlflow_sink, context({{"MLFLOW_TRACKING_TOKEN", "t0ken"}}));
        sink.write({item(started())}).value();
    }
    EXPECT_EQ(server_.requests().back().headers.at("authorization"), "Bearer t0ken");
    test::SinkProbe sink(make_mlflow_sink, context({{"MLFLOW_TRACKING_USERNAME", "Aladdin"},
                                                    {"MLFLOW_TRACKING_PASSWORD", "open sesame"}}));
    script_["runs/create"] = {status(401, "who?")};
    const auto refused = sink.write({item(started())});
    EXPECT_TRUE(refused.error().for_good);
    EXPECT_EQ(server_.requests().back().headers.at("authorization"), "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    for (const auto& request : server_.requests()) {
        EXPECT_THAT(request.body, Not(HasSubstr("sesame")));
    }
}

TEST(MlflowMessages, NumbersThatAreNoNumbersAreTexts) {
    StepRecord odd = step(1, std::numeric_limits<double>::quiet_NaN());
    odd.kd_loss = -std::numeric_limits<double>::infinity();
    const auto metrics = mlflow_metrics({item(odd)}, {});
    EXPECT_EQ(metrics[0].at("value"), "NaN");
    EXPECT_EQ(metrics[1].at("value"), "-Infinity");
}

TEST(MlflowMessages, ParametersHoldNoQueryOfAnEndpoint) {
    JobSpec spec;
    spec.teachers[""].endpoints = {"http://t:1/x?key=secret"};
    spec.training.max_steps = 1;
    std::string all;
    for (const auto& param : mlflow_params(public_spec(spec), {"training.seed"})) {
        all += boost::json::serialize(param) + "\n";
    }
    EXPECT_THAT(all, HasSubstr(R"("teacher.endpoints","value":"[\"http://t:1/x?…\"]")"));
    EXPECT_THAT(all, Not(HasSubstr("secret")));
    EXPECT_THAT(all, Not(HasSubstr("training.seed")));
}

}  // namespace
}  // namespace distilld::sinks
