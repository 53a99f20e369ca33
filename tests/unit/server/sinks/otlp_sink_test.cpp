#include "server/sinks/registry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "server/sinks/otlp_spans.hpp"
#include "tests/support/scripted_http_server.hpp"
#include "tests/unit/server/sinks/sink_probe.hpp"

namespace distilld::sinks {
namespace {

using test::item;
using test::started;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

SinkItem span(Stage stage, const char* name, int begin, int end, std::uint64_t number) {
    return item(SpanRecord{stage, name, Instant(Nanos(begin)), Instant(Nanos(end)), number});
}

SpanTreeOptions two_micro_batches() {
    SpanTreeOptions options;
    options.trace_seed[0] = 0xABC;
    options.trace_seed[1] = 0xDEF;
    options.steps = StepPlan(2, 0);
    options.unix_offset = std::chrono::nanoseconds(1000);
    return options;
}

/// "name begin-end" of each, as texts.
std::vector<std::string> names(const boost::json::array& spans) {
    std::vector<std::string> found;
    for (const auto& one : spans) {
        found.push_back(std::string(one.at("name").as_string()) + " " +
                        std::string(one.at("startTimeUnixNano").as_string()) + "-" +
                        std::string(one.at("endTimeUnixNano").as_string()));
    }
    return found;
}

const std::vector<SinkItem>& one_step() {
    static const std::vector<SinkItem> items{
        span(Stage::plan, "plan", 10, 11, 0),        span(Stage::plan, "plan", 12, 13, 1),
        span(Stage::teacher, "timeout", 11, 20, 0),  span(Stage::teacher, "retry", 21, 25, 0),
        span(Stage::student, "train", 30, 40, 1),    span(Stage::optimizer, "finish_step", 40, 50, 0),
        span(Stage::optimizer, "update", 51, 52, 1), span(Stage::recorder, "checkpoint", 50, 60, 1),
        span(Stage::plan, "plan", 55, 56, 2),
    };
    return items;
}

TEST(SpanTree, HasTheStagesBelowTheirStepAndTheStepsBelowTheJob) {
    SpanTree tree(two_micro_batches());
    const auto spans = tree.spans_of(one_step());
    EXPECT_THAT(names(spans),
                ElementsAre("plan 1010-1011", "plan 1012-1013", "teacher.request 1011-1020", "teacher.retry 1021-1025",
                            "student.train 1030-1040", "optimizer.finish_step 1040-1050", "step 1010-1050",
                            "optimizer.update 1051-1052", "recorder.checkpoint 1050-1060", "plan 1055-1056"));
    const auto& step = spans[6];
    for (const std::size_t child : {0U, 1U, 2U, 3U, 4U, 5U}) {
        EXPECT_EQ(spans[child].at("parentSpanId"), step.at("spanId")) << child;
    }
    EXPECT_EQ(spans[7].at("parentSpanId"), step.at("parentSpanId"));
    EXPECT_EQ(spans[8].at("parentSpanId"), step.at("parentSpanId"));
    EXPECT_NE(spans[9].at("parentSpanId"), step.at("spanId")) << "of the next step";
    for (const auto& one : spans) {
        EXPECT_EQ(one.at("traceId"), "0000000000000abc0000000000000def");
        EXPECT_EQ(one.at("spanId").as_string().size(), 16U);
    }
    EXPECT_EQ(boost::json::serialize(spans[2].at("status")), R"({"code":2,"message":"timeout"})");
    EXPECT_EQ(spans[2].at("kind"), 3);
    EXPECT_EQ(boost::json::serialize(step.at("attributes")), R"([{"key":"distilld.step","value":{"intValue":"1"}}])");

    tree.sent();
    const auto last = tree.spans_of({item(test::ended(EndRecord::Status::failed, 1), 2)});
    EXPECT_THAT(names(last), ElementsAre("step 1055-1056", "job 1700000000000000000-1700000002000000000"))
        << "a step that did not end is shown as far as it came";
    EXPECT_EQ(last[1].at("spanId"), step.at("parentSpanId"));
    EXPECT_FALSE(last[1].as_object().contains("parentSpanId"));
    EXPECT_EQ(last[1].at("status").at("code"), 2);
}

TEST(SpanTree, ASecondTryGivesTheSameSpans) {
    SpanTree tree(two_micro_batches());
    EXPECT_EQ(tree.spans_of(one_step()), tree.spans_of(one_step()));
}

TEST(SpanTree, ALongRunIsSampledByWholeSteps) {
    std::uint64_t sampled = 0;
    for (std::uint64_t index = 0; index < 1'000'000; ++index) {
        sampled += is_sampled(index) ? 1 : 0;
        EXPECT_TRUE(is_sampled(index) || index >= 1000);
    }
    EXPECT_LT(sampled, 6'500U);
    EXPECT_GT(sampled, 5'500U);
    SpanTreeOptions options = two_micro_batches();
    options.first_step = 100'000;
    SpanTree tree(options);
    EXPECT_EQ(tree.spans_of({span(Stage::plan, "plan", 1, 2, 2 * 101'001)}).size(), 0U) << "1001 behind the first";
    EXPECT_EQ(tree.spans_of({span(Stage::plan, "plan", 1, 2, 2 * 101'002)}).size(), 1U);
    EXPECT_EQ(tree.spans_of({span(Stage::recorder, "checkpoint", 1, 2, 101'001)}).size(), 1U);
}

class OtlpSink : public ::testing::Test {
  protected:
    SinkContext context(const std::string& url, std::map<std::string, std::string> environment = {}) const {
        SinkContext made = test::context_of("/out", std::move(environment));
        made.spec.metrics.otlp_url = url;
        return made;
    }

    test::ScriptedReply next_;
    test::ScriptedHttpServer server_{[this](const test::SeenRequest&) { return next_; }};
};

TEST_F(OtlpSink, PostsWhatTheProtocolAsksFor) {
    test::SinkProbe sink(make_otlp_sink, context(server_.url("/base/")));
    sink.write({item(started())}).value();
    EXPECT_THAT(server_.requests(), IsEmpty()) << "there is no span yet";
    sink.write({span(Stage::plan, "plan", 1, 2, 0)}).value();
    const auto seen = server_.requests().at(0);
    EXPECT_EQ(seen.target, "/base/v1/traces");
    EXPECT_EQ(seen.headers.at("content-type"), "application/json");
    EXPECT_THAT(seen.body, StartsWith(R"({"resourceSpans":[{"resource":{"attributes":[{"key":"service.name",)"
                                      R"("value":{"stringValue":"distilld"}},)"));
    EXPECT_THAT(seen.body, HasSubstr(R"({"key":"distilld.job.id","value":{"stringValue":"job-1"}})"));
    EXPECT_THAT(seen.body, HasSubstr(R"("scopeSpans":[{"scope":{"name":"distilld",)"));
}

TEST_F(OtlpSink, TheEnvironmentSaysWhereUnlessTheSpecDoes) {
    const std::map<std::string, std::string> general{{"OTEL_EXPORTER_OTLP_ENDPOINT", server_.url("/a")},
                                                     {"OTEL_EXPORTER_OTLP_HEADERS", "api-key=k%20y, x = 1 ,bad,=2"}};
    test::SinkProbe(make_otlp_sink, context("", general)).write({span(Stage::plan, "plan", 1, 2, 0)}).value();
    auto special = general;
    special["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = server_.url("/exactly/here");
    test::SinkProbe(make_otlp_sink, context("", special)).write({span(Stage::plan, "plan", 1, 2, 0)}).value();
    test::SinkProbe(make_otlp_sink, context(server_.url("/v1/traces"), special))
        .write({span(Stage::plan, "plan", 1, 2, 0)})
        .value();
    const auto seen = server_.requests();
    EXPECT_EQ(seen.at(0).target, "/a/v1/traces");
    EXPECT_EQ(seen.at(0).headers.at("api-key"), "k y");
    EXPECT_EQ(seen.at(0).headers.at("x"), "1");
    EXPECT_EQ(seen.at(1).target, "/exactly/here");
    EXPECT_EQ(seen.at(2).target, "/v1/traces");
    EXPECT_FALSE(test::SinkProbe(make_otlp_sink, context("")).asked_for());
    boost::asio::io_context io;
    EXPECT_THAT(
        make_otlp_sink(context("", {{"OTEL_EXPORTER_OTLP_ENDPOINT", "collector"}}), io.get_executor()).error().message,
        StartsWith("OTEL_EXPORTER_OTLP_ENDPOINT: "));
}

TEST_F(OtlpSink, TriesAgainWhatTheProtocolSaysMayBe) {
    for (const unsigned status : {429U, 502U, 503U, 504U, 400U, 401U, 500U}) {
        next_.status = status;
        test::SinkProbe sink(make_otlp_sink, context(server_.url()));
        const auto failed = sink.write({span(Stage::plan, "plan", 1, 2, 0)});
        ASSERT_FALSE(failed);
        EXPECT_EQ(failed.error().for_good, status == 400 || status == 401 || status == 500) << status;
    }
}

TEST_F(OtlpSink, SpansThatTheCollectorDidNotTakeAreCounted) {
    next_.body = R"({"partialSuccess":{"rejectedSpans":"2","errorMessage":"too old"}})";
    test::SinkProbe sink(make_otlp_sink, context(server_.url()));
    const Written done = sink.write({span(Stage::plan, "plan", 1, 2, 0)}).value();
    EXPECT_EQ(done.refused, 2U);
    EXPECT_EQ(done.why, "too old");
}

}  // namespace
}  // namespace distilld::sinks
