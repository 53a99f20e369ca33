#include "server/sinks/registry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <fstream>
#include <limits>

#include "tests/support/temporary_folder.hpp"
#include "tests/unit/server/sinks/sink_probe.hpp"

namespace distilld::sinks {
namespace {

using test::item;
using test::started;
using test::step;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class JsonlSink : public ::testing::Test {
  protected:
    SinkContext context(std::uint64_t first_step = 0, const std::string& output = "/out") const {
        SinkContext made = test::context_of(output);
        made.spec.metrics.jsonl_file = file_.string();
        made.first_step = first_step;
        return made;
    }
    std::string refusal(const SinkContext& asked) const {
        boost::asio::io_context io;
        const auto made = make_jsonl_sink(asked, io.get_executor());
        return made ? "" : made.error().message;
    }
    /// "kind step" of each line.
    std::vector<std::string> lines() const {
        std::vector<std::string> found;
        std::ifstream in(file_);
        for (std::string text; std::getline(in, text);) {
            const auto line = boost::json::parse(text);
            found.push_back(std::string(line.at("kind").as_string()) + " " +
                            std::to_string(line.at("step").to_number<std::uint64_t>()));
        }
        return found;
    }

    test::TemporaryFolder folder_;
    std::filesystem::path file_ = folder_.path() / "sub" / "metrics.jsonl";
};

TEST_F(JsonlSink, WritesALineForEachRecord) {
    test::SinkProbe sink(make_jsonl_sink, context());
    StepRecord odd = step(2, std::numeric_limits<double>::quiet_NaN());
    sink.write({item(started()), item(step(1), 0.25), item(odd), item(EvaluationEvent{2, 0.5, 30}),
                item(FiguresEvent{1, {{"acc", 0.5}}, 3}), item(RolloutEvent{2, 1}),
                item(CheckpointEvent{2, "/out/checkpoints/step-2", 0.125})})
        .value();
    sink.write({item(test::ended(EndRecord::Status::finished, 2))}).value();
    EXPECT_THAT(lines(), ElementsAre("started 0", "step 1", "step 2", "evaluation 2", "figures 1", "rollout 2",
                                     "checkpoint 2", "finished 2"));
    std::ifstream in(file_);
    std::string first;
    std::string second;
    std::string third;
    std::getline(in, first);
    std::getline(in, second);
    std::getline(in, third);
    EXPECT_THAT(
        first,
        StartsWith(R"({"kind":"started","step":0,"time":1700000000,"name":"a job","job_id":"job-1","output":"/out",)"));
    EXPECT_EQ(second,
              R"({"kind":"step","step":1,"time":1700000000.25,"total_steps":10,"loss":1.5,"kd_loss":1.25,"ce_loss":0,)"
              R"("grad_norm":0,"learning_rate":0.001,"tokens":100,"tokens_per_second":0,"stall_fraction":0,)"
              R"("teacher_hidden_fraction":0,"seconds_elapsed":0,"nonfinite_steps":0})");
    EXPECT_THAT(third, HasSubstr(R"("loss":null)"));
}

TEST_F(JsonlSink, ARunThatGoesOnCutsBackWhatLiesBehindItsCheckpoint) {
    {
        test::SinkProbe sink(make_jsonl_sink, context());
        sink.write({item(started()), item(step(1)), item(step(2)), item(step(3)),
                    item(CheckpointEvent{2, "written behind step 3", 0.1}), item(step(4))})
            .value();
    }
    std::ofstream(file_, std::ios::app) << R"({"kind":"step","step":5,"ti)";  // the machine went down
    const std::string before = test::read_bytes(file_);
    test::SinkProbe sink(make_jsonl_sink, context(2));
    EXPECT_EQ(test::read_bytes(file_), before) << "nothing is changed before the run begins";
    sink.write({item(started(2)), item(step(3))}).value();
    EXPECT_THAT(lines(), ElementsAre("started 0", "step 1", "step 2", "checkpoint 2", "started 2", "step 3"));
}

TEST_F(JsonlSink, ARunThatBeginsAnewBeginsANewFile) {
    {
        test::SinkProbe(make_jsonl_sink, context()).write({item(started()), item(step(1))}).value();
    }
    test::SinkProbe(make_jsonl_sink, context()).write({item(started())}).value();
    EXPECT_THAT(lines(), ElementsAre("started 0"));
}

TEST_F(JsonlSink, ARunThatEndsBeforeItBeginsChangesNothing) {
    const auto end = [this] {
        test::SinkProbe(make_jsonl_sink, context()).write({item(test::ended(EndRecord::Status::cancelled, 0))}).value();
    };
    end();
    EXPECT_THAT(lines(), testing::IsEmpty());
    test::SinkProbe(make_jsonl_sink, context()).write({item(started()), item(step(1))}).value();
    end();
    EXPECT_THAT(lines(), ElementsAre("started 0", "step 1"));
}

TEST_F(JsonlSink, WhatIsAnothersIsRefusedAndStays) {
    {
        test::SinkProbe(make_jsonl_sink, context()).write({item(started()), item(step(1))}).value();
    }
    EXPECT_THAT(refusal(context(0, "/elsewhere")),
                StartsWith("/metrics/jsonl_file: " + file_.string() + " belongs to a run with output /out"));
    EXPECT_EQ(lines().size(), 2U);
    std::ofstream(file_) << R"({"text":"data"})" << "\n";
    EXPECT_THAT(refusal(context()), HasSubstr("does not hold the metrics of a run. Nothing was changed"));
    SinkContext replacing = context();
    replacing.spec.overwrite = true;
    test::SinkProbe(make_jsonl_sink, replacing).write({item(started())}).value();
    EXPECT_THAT(lines(), ElementsAre("started 0"));
}

TEST_F(JsonlSink, NoFileIsNoSinkAndAnUnwritableOneIsAnError) {
    SinkContext none = context();
    none.spec.metrics.jsonl_file = "";
    EXPECT_FALSE(test::SinkProbe(make_jsonl_sink, none).asked_for());
    none.spec.metrics.jsonl_file = "/proc/nowhere/metrics.jsonl";
    EXPECT_THAT(refusal(none), StartsWith("/metrics/jsonl_file: /proc/nowhere: cannot create folder"));
}

}  // namespace
}  // namespace distilld::sinks
