#include "pipeline/graph/evaluation.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include <boost/asio/post.hpp>

#include "tests/unit/pipeline/graph/graph_fixture.hpp"

namespace distilld {
namespace {

using namespace std::chrono_literals;
using test::FakeTeacher;
using test::Outcome;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EvaluationTest : public test::TrainingGraphTest {
  protected:
    EvaluationTest() { options_.training.eval_steps = 2; }

    /// Three micro-batches about which `teacher` is asked, whose limit the training's is.
    EvaluationSet asked(FakeTeacher& teacher) {
        EvaluationSet set = held_out({{0, 1}, {2, 3}, {4}});
        set.turn = std::make_shared<TeacherTurn>();
        source_ = make_turn_taking_teacher(teacher, *set.turn);
        set.teachers.push_back({"", source_.get(), asking_});
        return set;
    }

    static std::vector<EvaluationEvent> evaluations(const Outcome& run) {
        std::vector<EvaluationEvent> found;
        for (const WorkerEvent& event : run.events) {
            if (const auto* evaluation = std::get_if<EvaluationEvent>(&event)) {
                found.push_back(*evaluation);
            }
        }
        return found;
    }

    static std::vector<std::string> warnings(const Outcome& run) {
        std::vector<std::string> found;
        for (const WorkerEvent& event : run.events) {
            const auto* log = std::get_if<LogEvent>(&event);
            if (log != nullptr && log->level == "warn" && log->message.find("held-out") != std::string::npos) {
                found.push_back(log->message);
            }
        }
        return found;
    }

    std::unique_ptr<TeacherSource> source_;
    FakeTeacher of_held_out_;
};

TEST_F(EvaluationTest, TellsHowFarTheStudentIsFromTheTeacher) {
    const Outcome run = this->run(&teacher_, asked(of_held_out_));
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    const auto told = evaluations(run);
    ASSERT_EQ(told.size(), 3U);
    for (const EvaluationEvent& evaluation : told) {
        EXPECT_DOUBLE_EQ(evaluation.loss, 2.0);
        EXPECT_EQ(evaluation.tokens, 20U);
        EXPECT_DOUBLE_EQ(evaluation.kl.value(), 0.5);
        EXPECT_DOUBLE_EQ(evaluation.top1_agreement.value(), 0.25);
        EXPECT_DOUBLE_EQ(evaluation.acceptance_rate.value(), 0.75);
    }
    EXPECT_THAT(of_held_out_.asked, ::testing::UnorderedElementsAre(0, 1, 2, 0, 1, 2, 0, 1, 2));
    EXPECT_THAT(warnings(run), ElementsAre());
}

TEST_F(EvaluationTest, WithoutATeacherThereAreNoFiguresOfIt) {
    const Outcome run = this->run(&teacher_, held_out({{0, 1}}));
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    for (const EvaluationEvent& evaluation : evaluations(run)) {
        EXPECT_FALSE(evaluation.kl || evaluation.top1_agreement || evaluation.acceptance_rate);
    }
}

TEST_F(EvaluationTest, NeverMoreRequestsAreInFlightThanTheTrainingMayHave) {
    for (const std::uint32_t limit : {1U, 3U}) {
        asking_.scheduler.limit.ceiling = limit;
        asking_.scheduler.hedge.enabled = false;  // of what a busy machine delays; requests are counted below
        teacher_ = FakeTeacher();
        teacher_.decide = [](std::uint64_t, std::size_t) { return FakeTeacher::Fate{2ms, {}}; };
        const Outcome run = this->run(&teacher_, asked(teacher_));
        ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
        EXPECT_EQ(teacher_.max_in_flight, static_cast<int>(limit)) << "and the limit is made use of";
        EXPECT_EQ(evaluations(run).size(), 3U);
        EXPECT_EQ(teacher_.asked.size(), 15U + 3 * 3);
    }
}

TEST_F(EvaluationTest, OneAfterTheOtherInSequentialMode) {
    options_.training.parallel = false;
    teacher_.decide = [](std::uint64_t, std::size_t) { return FakeTeacher::Fate{1ms, {}}; };
    const Outcome run = this->run(&teacher_, asked(teacher_));
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_EQ(teacher_.max_in_flight, 1);
    EXPECT_EQ(evaluations(run).size(), 3U);
}

TEST_F(EvaluationTest, WhatIsTrainedOnDoesNotDependOnIt) {
    ASSERT_TRUE(this->run(&teacher_, held_out({{0, 1}})).outcome->has_value());
    const std::vector<std::string> alone = training_log();
    student_.log.clear();
    ASSERT_TRUE(this->run(&teacher_, asked(teacher_)).outcome->has_value());
    EXPECT_EQ(training_log(), alone);
}

TEST_F(EvaluationTest, ATeacherThatRefusesHeldOutRowsCostsTheFiguresNotTheRun) {
    of_held_out_.decide = [this](std::uint64_t micro_batch, std::size_t) {
        const bool refuses = micro_batch == 1 && std::ranges::count(of_held_out_.asked, 1U) == 1;  // the first time
        return FakeTeacher::Fate{
            0us, refuses ? std::optional(FetchError{FailureKind::rejected, "too long", {}}) : std::nullopt};
    };
    const Outcome run = this->run(&teacher_, asked(of_held_out_));
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_FALSE((*run.outcome)->cancelled);
    const auto told = evaluations(run);
    ASSERT_EQ(told.size(), 3U);
    EXPECT_FALSE(told.front().kl || told.front().top1_agreement) << "not of some of the rows";
    EXPECT_DOUBLE_EQ(told.front().loss, 2.0);
    EXPECT_EQ(told.front().tokens, 20U) << "the student's own figure is of all";
    EXPECT_DOUBLE_EQ(told.back().kl.value(), 0.5) << "it is asked again";
    ASSERT_EQ(warnings(run).size(), 1U);
    EXPECT_THAT(warnings(run).front(), HasSubstr("too long"));
    EXPECT_EQ(training_log(), expected_log(0, 5, 3));
}

TEST_F(EvaluationTest, ACancelDoesNotWaitForTheTeacher) {
    of_held_out_.decide = [this](std::uint64_t, std::size_t) {
        boost::asio::post(*io_, [this] { graph_->cancel(); });
        return FakeTeacher::Fate{1h, {}};
    };
    asking_.deadline = 2h;
    const Outcome run = this->run(&teacher_, asked(of_held_out_));
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_TRUE((*run.outcome)->cancelled);
    EXPECT_EQ((*run.outcome)->checkpoint, "step-2");
    EXPECT_EQ(of_held_out_.in_flight, 0);
}

TEST_F(EvaluationTest, OneThatIsStoppedFromOutsideJoinsItsRequests) {
    of_held_out_.decide = [this](std::uint64_t, std::size_t) {
        boost::asio::post(*io_, [this] { stop_.emit(boost::asio::cancellation_type::terminal); });
        return FakeTeacher::Fate{1h, {}};
    };
    asking_.deadline = 2h;
    const Outcome run = this->run(&teacher_, asked(of_held_out_));
    EXPECT_TRUE(run.aborted);
    EXPECT_EQ(of_held_out_.in_flight, 0);
}

TEST_F(EvaluationTest, AnOperatorsLimitHoldsForItToo) {
    teacher_.decide = [this](std::uint64_t, std::size_t call) {
        if (call == 1) {
            boost::asio::post(*io_, [this] { graph_->set_max_concurrent(2); });
        }
        return FakeTeacher::Fate{1ms, {}};
    };
    of_held_out_.decide = [](std::uint64_t, std::size_t) { return FakeTeacher::Fate{1ms, {}}; };
    const Outcome run = this->run(&teacher_, asked(of_held_out_));
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_EQ(of_held_out_.max_in_flight, 2);
}

}  // namespace
}  // namespace distilld
