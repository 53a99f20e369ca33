#include "pipeline/graph/training_graph.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <boost/system/system_error.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/unit/pipeline/graph/graph_fixture.hpp"

namespace distilld {
namespace {

using namespace std::chrono_literals;
using test::FakeStudent;
using test::FakeTeacher;
using test::Outcome;
using test::SmallDataset;
using test::TrainingGraphTest;

TEST_F(TrainingGraphTest, TrainsInOrderWhateverTheOrderOfAnswers) {
    teacher_.decide = [](std::uint64_t n, std::size_t) {
        return FakeTeacher::Fate{std::chrono::microseconds((n * 7919) % 5000), {}};
    };
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome.has_value()) << run.thrown;
    ASSERT_TRUE(run.outcome->has_value());
    EXPECT_EQ(training_log(), expected_log(0, 5, 3));
    EXPECT_EQ((*run.outcome)->steps_done, 5U);
    EXPECT_LE(teacher_.max_in_flight, 4);
    EXPECT_GT(teacher_.max_in_flight, 1) << "requests overlap";
    EXPECT_EQ(run.checkpoints, std::vector<std::uint64_t>{5});
    std::vector<std::string> stages;
    for (const StageTimes& stage : (*run.outcome)->last.stages) {
        stages.push_back(stage.stage);
    }
    std::vector<std::string> expected(kStageNames.begin(), kStageNames.end());
    std::erase(expected, stage_name(Stage::rollout));
    EXPECT_EQ(stages, expected);
}

TEST_F(TrainingGraphTest, SequentialModeIsTheSameGraphWithOneInFlight) {
    options_.training.parallel = false;
    bool overlapped = false;
    student_.on_train = [this, &overlapped](std::uint64_t) { overlapped = overlapped || teacher_.in_flight > 0; };
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_EQ(training_log(), expected_log(0, 5, 3));
    EXPECT_EQ(teacher_.max_in_flight, 1);
    EXPECT_FALSE(overlapped);
    EXPECT_EQ(student_.idle_updates, 0);
}

TEST_F(TrainingGraphTest, FailedRequestsAreRetriedAndChangeNothing) {
    teacher_.decide = [](std::uint64_t n, std::size_t call) {
        FakeTeacher::Fate fate{200us, {}};
        if (call % 3 == 0 && n % 2 == 0) {
            fate.failure = FetchError{FailureKind::server_error, "500", {}};
        }
        return fate;
    };
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_EQ(training_log(), expected_log(0, 5, 3));
    EXPECT_GT((*run.outcome)->last.fetch.retries, 0U);
}

TEST_F(TrainingGraphTest, BytesThatCannotBeDecodedAreAskedForAgain) {
    std::atomic<int> damaged = 0;
    teacher_.decode = [&damaged](std::uint64_t n) {
        return n == 4 && damaged++ == 0 ? std::optional<std::string>("half an answer") : std::nullopt;
    };
    asking_.scheduler.hedge.enabled = false;
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_EQ(training_log(), expected_log(0, 5, 3));
    const ProgressEvent& last = (*run.outcome)->last;
    EXPECT_EQ(last.fetch.failures.at("bad_response"), 1U);
    EXPECT_EQ(last.fetch.bytes_received, 16 * FakeTeacher::kWireBytes) << "of the damaged answer too";
    EXPECT_EQ(std::count_if(last.stages.begin(), last.stages.end(),
                            [](const StageTimes& times) { return times.stage == "decode" && times.busy_seconds > 0; }),
              1);
}

TEST_F(TrainingGraphTest, ResumedRunContinuesTheNumbers) {
    options_.first_step = 3;
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_EQ(training_log(), expected_log(3, 5, 3));
    EXPECT_EQ(teacher_.asked.front(), 9U);
}

TEST_F(TrainingGraphTest, ABugInASourceEndsTheRunWithItsMessage) {
    teacher_.decide = [](std::uint64_t n, std::size_t) -> FakeTeacher::Fate {
        if (n == 7) {
            throw std::runtime_error("a bug");
        }
        return {100us, {}};
    };
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome) << run.thrown;
    ASSERT_TRUE(run.outcome->has_error());
    EXPECT_EQ(run.outcome->error().kind, ErrorKind::internal);
    EXPECT_EQ(run.outcome->error().message, "teacher stage: a bug");
}

TEST_F(TrainingGraphTest, ARequestThatIsAbortedByItselfIsMadeAgain) {
    teacher_.decide = [](std::uint64_t n, std::size_t call) -> FakeTeacher::Fate {
        if (n == 7 && call < 12) {
            throw boost::system::system_error(boost::asio::error::operation_aborted);
        }
        return {100us, {}};
    };
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_EQ(training_log(), expected_log(0, 5, 3));
    EXPECT_GT((*run.outcome)->last.fetch.retries, 0U);
}

TEST_F(TrainingGraphTest, PlainTrainingNeedsNoTeacher) {
    const Outcome run = this->run(nullptr);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_EQ(training_log(), expected_log(0, 5, 3));
    for (const StageTimes& stage : (*run.outcome)->last.stages) {
        EXPECT_NE(stage.stage, "teacher");
    }
}

TEST_F(TrainingGraphTest, EvaluationRunsAtItsStepsAndAtTheEnd) {
    options_.training.eval_steps = 2;
    const Outcome run = this->run(&teacher_, held_out({{0, 1}, {2}}));
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_DOUBLE_EQ(*(*run.outcome)->eval_loss, 2.0);
    std::vector<std::uint64_t> steps;
    for (const WorkerEvent& event : run.events) {
        if (const auto* evaluation = std::get_if<EvaluationEvent>(&event)) {
            steps.push_back(evaluation->step);
            EXPECT_EQ(evaluation->tokens, 12U);
        }
    }
    EXPECT_EQ(steps, (std::vector<std::uint64_t>{2, 4, 5}));
}

TEST_F(TrainingGraphTest, EvaluationsBringWhatTheStudentSays) {
    options_.training.eval_steps = 4;
    sample_ = [](Student&, std::uint64_t step) {
        return std::vector<SampledText>{{"prompt", "text of step " + std::to_string(step)}};
    };
    const Outcome run = this->run(&teacher_, held_out({{0, 1}}));
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    std::vector<std::string> texts;
    for (const WorkerEvent& event : run.events) {
        if (const auto* evaluation = std::get_if<EvaluationEvent>(&event)) {
            ASSERT_EQ(evaluation->samples.size(), 1U);
            texts.push_back(evaluation->samples.front().text);
        }
    }
    EXPECT_EQ(texts, (std::vector<std::string>{"text of step 4", "text of step 5"}));
}

TEST_F(TrainingGraphTest, IdleTimeAppliesPendingUpdates) {
    teacher_.decide = [](std::uint64_t, std::size_t) { return FakeTeacher::Fate{3ms, {}}; };
    asking_.scheduler.limit.ceiling = 1;  // the student waits after each step
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_GT(student_.idle_updates, 0);
    EXPECT_LE(student_.idle_updates, 5 * FakeStudent::kUpdatesOfAStep);
}

}  // namespace
}  // namespace distilld
