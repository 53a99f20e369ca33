#include <gmock/gmock.h>

#include <atomic>
#include <condition_variable>
#include <set>

#include <boost/asio/post.hpp>

#include "pipeline/teacher/rollout/rollout_codec.hpp"
#include "tests/unit/pipeline/graph/graph_fixture.hpp"

namespace distilld {
namespace {

using test::FakeStudent;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::int32_t kOfVersion = 100;  // an answer is this many times its version, plus its row

/// Writes one token to each prompt.
class FakeWriter final : public TeacherSource {
  public:
    std::size_t endpoint_count() const override { return 1; }
    const std::string& endpoint_name(std::size_t) const override { return name_; }
    boost::asio::awaitable<Result<TeacherInfo>> probe(std::uint32_t) override { co_return TeacherInfo(); }
    AnswerSize answer_size(std::uint32_t, std::uint32_t) const override { return {}; }
    void close() override {}
    boost::asio::awaitable<FetchResult<EncodedAnswer>> fetch(std::size_t, std::shared_ptr<const TokenBatch> tokens,
                                                             std::chrono::nanoseconds) override {
        const std::uint64_t version = plan.version_of(tokens->number);
        {
            const std::lock_guard lock(mutex_);
            asked_.insert(tokens->number);
            EXPECT_TRUE(published.contains(version)) << "micro-batch " << tokens->number << " came too early";
        }
        changed_.notify_all();
        if (refuses_from <= tokens->number) {
            co_return FetchError{FailureKind::rejected, "no", std::nullopt};
        }
        std::vector<Rollout> rollouts(tokens->rows);
        for (std::uint32_t i = 0; i < tokens->rows; ++i) {
            const std::uint64_t row = tokens->row_ids[i];
            if (plan.answers(tokens->number, i, row)) {
                rollouts[i] = {{static_cast<std::int32_t>(version) * kOfVersion + static_cast<std::int32_t>(row)},
                               {-0.5F}};
            }
        }
        co_return EncodedAnswer(targets_of(rollouts, tokens->lengths, tokens->columns));
    }

    bool wait_until_asked(std::uint64_t micro_batch) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return asked_.contains(micro_batch); });
    }
    void publish(std::uint64_t version) {
        const std::lock_guard lock(mutex_);
        published.insert(version);
    }

    RolloutPlan plan;
    std::set<std::uint64_t> published;
    std::uint64_t refuses_from = std::numeric_limits<std::uint64_t>::max();

  private:
    std::string name_ = "writer";
    std::mutex mutex_;
    std::condition_variable changed_;
    std::set<std::uint64_t> asked_;
};

class RolloutStageTest : public test::TrainingGraphTest {
  protected:
    test::Outcome run_with(std::uint64_t staleness) {
        student_.log.clear();
        writer_.plan = {BatchPlan(10, 2, 1).steps_of(3), 10, 2, false, 1, staleness, lmbda_, 4};
        RolloutOptions rollout;
        rollout.source = &writer_;
        rollout.asking = asking_;
        rollout.plan = writer_.plan;
        rollout.max_tokens = 1;
        rollout.dataset = dataset_;
        rollout.publish = [this](std::uint64_t steps, const StudentSnapshot& snapshot) -> Result<void> {
            if (publish_error_ && steps == 2) {
                return *publish_error_;
            }
            FakeStudent expected;
            expected.log = expected_log(options_.first_step, steps, 3);
            EXPECT_EQ(dynamic_cast<const FakeStudent::Snapshot&>(snapshot).weight, expected.weight());
            writer_.publish(steps);
            return {};
        };
        rollout.keep = [this](const RolloutStep& step) -> Result<void> {
            if (keep_error_ && step.step == 2) {
                return *keep_error_;
            }
            kept_.push_back(step);
            return {};
        };
        if (!publishes_) {
            rollout.publish = nullptr;
        }
        options_.rollout = std::move(rollout);
        return run(&teacher_);
    }

    static std::vector<RolloutEvent> shown_of(const test::Outcome& outcome) {
        std::vector<RolloutEvent> shown;
        for (const WorkerEvent& event : outcome.events) {
            if (const auto* one = std::get_if<RolloutEvent>(&event)) {
                shown.push_back(*one);
            }
        }
        return shown;
    }

    FakeWriter writer_;
    double lmbda_ = 1;
    bool publishes_ = true;
    std::optional<Error> publish_error_;
    std::optional<Error> keep_error_;
    std::vector<RolloutStep> kept_;  // on the disk thread
};

TEST_F(RolloutStageTest, EachStepIsWrittenByTheWeightsOfExactlyKStepsBefore) {
    for (const bool parallel : {true, false}) {
        for (const std::uint64_t staleness : {0, 1, 2, 9}) {
            writer_.published.clear();
            kept_.clear();
            options_.training.parallel = parallel;
            std::uint64_t staged = 0;
            student_.on_stage = [&](const MicroBatch& batch) {
                ++staged;
                const auto version = static_cast<std::int32_t>(writer_.plan.version_of(batch.tokens->number));
                EXPECT_EQ(batch.step_target_tokens, 6U);
                for (std::uint32_t row = 0; row < 2; ++row) {
                    EXPECT_EQ(batch.tokens->labels[row * 4 + 3],
                              version * kOfVersion + static_cast<std::int32_t>(batch.tokens->row_ids[row]));
                }
            };
            const auto outcome = run_with(staleness);
            ASSERT_TRUE(outcome.outcome && *outcome.outcome) << outcome.thrown;
            EXPECT_EQ(training_log(), expected_log(0, 5, 3));
            EXPECT_EQ(staged, 15U);
            EXPECT_THAT(writer_.published, ElementsAre(0, 1, 2, 3, 4));
            ASSERT_EQ(kept_.size(), 5U);
            EXPECT_EQ(kept_[4].answers.front().version, 4 - std::min<std::uint64_t>(4, staleness));
            EXPECT_EQ((*outcome.outcome)->last.rollout->answers, 30U);
            EXPECT_EQ((*outcome.outcome)->last.rollout->cut, 30U);
            EXPECT_EQ((*outcome.outcome)->last.rollout->entropy, 0.5);
            ASSERT_EQ((*outcome.outcome)->last.rollout->lengths.size(), 1U);
            EXPECT_EQ((*outcome.outcome)->last.rollout->lengths[0].answers, 30U);
            const auto shown = shown_of(outcome);
            ASSERT_EQ(shown.size(), 5U);
            for (std::uint64_t step = 1; step <= 5; ++step) {
                const RolloutEvent& event = shown[step - 1];
                EXPECT_EQ(event.step, step);
                EXPECT_EQ(event.version, kept_[step - 1].answers.front().version);
                ASSERT_EQ(event.samples.size(), 2U);
                EXPECT_EQ(event.samples[1].text, std::to_string(kept_[step - 1].answers[0].answers[1].ids[0]));
            }
            EXPECT_EQ((*outcome.outcome)->last.stages[1].stage, "rollout");
        }
    }
}

TEST_F(RolloutStageTest, RowsOfTheDatasetTakeThePlacesOfPromptsThatAreNotAnswered) {
    lmbda_ = 0.5;
    std::uint64_t answered = 0;
    std::uint64_t others = 0;
    student_.on_stage = [&](const MicroBatch& batch) {
        const TokenBatch& tokens = *batch.tokens;
        for (std::uint32_t row = 0; row < tokens.rows; ++row) {
            const auto labels = std::span(tokens.labels).subspan(std::size_t{row} * tokens.columns, tokens.columns);
            if (writer_.plan.answers(tokens.number, row, tokens.row_ids[row])) {
                ++answered;
                EXPECT_EQ(std::ranges::count_if(labels, [](std::int32_t label) { return label != kIgnoredLabel; }), 1);
                continue;
            }
            ++others;
            const TokenBatch expected =
                dataset_->batch(0, {writer_.plan.dataset_row(tokens.number, row, tokens.row_ids[row])});
            EXPECT_THAT(labels.first(expected.labels.size()), ElementsAreArray(expected.labels));
        }
    };
    const auto outcome = run_with(1);
    ASSERT_TRUE(outcome.outcome && *outcome.outcome) << outcome.thrown;
    EXPECT_EQ(answered + others, 30U);
    EXPECT_GT(answered, 5U);
    EXPECT_GT(others, 5U);
    EXPECT_EQ((*outcome.outcome)->last.rollout->answers, answered);
}

TEST_F(RolloutStageTest, WhatIsReplayedTakesNoWeights) {
    publishes_ = false;
    writer_.published = {0, 1, 2, 3, 4};
    const auto outcome = run_with(1);
    ASSERT_TRUE(outcome.outcome && *outcome.outcome) << outcome.thrown;
    EXPECT_EQ(training_log(), expected_log(0, 5, 3));
}

TEST_F(RolloutStageTest, TheNextAnswersAreWrittenWhileTheStudentTrains) {
    student_.on_train = [this](std::uint64_t number) {
        if (number < 12) {  // the answers of the last step belong to no later one
            EXPECT_TRUE(writer_.wait_until_asked(number + 3));
        }
    };
    const auto outcome = run_with(1);
    ASSERT_TRUE(outcome.outcome && *outcome.outcome) << outcome.thrown;
}

TEST_F(RolloutStageTest, ARunGoesOnWithTheVersionsOfItsSteps) {
    options_.first_step = 2;
    writer_.published = {0, 1};  // on the disk since the run before
    const auto outcome = run_with(2);
    ASSERT_TRUE(outcome.outcome && *outcome.outcome) << outcome.thrown;
    EXPECT_EQ(training_log(), expected_log(2, 5, 3));
    EXPECT_THAT(writer_.published, ElementsAre(0, 1, 2, 3, 4));
    EXPECT_EQ(kept_.front().answers.front().version, 0U);
}

TEST_F(RolloutStageTest, TheLossIsTheReverseKlWhereItIs) {
    const auto reverse_kl = [this] { return (*run_with(0).outcome)->last.rollout->reverse_kl; };
    options_.training.beta = 1;
    EXPECT_TRUE(reverse_kl().has_value());
    options_.training.temperature = 2;
    EXPECT_FALSE(reverse_kl().has_value());
    options_.training.temperature = 1;
    options_.training.beta = 0.5;
    EXPECT_FALSE(reverse_kl().has_value());
}

TEST_F(RolloutStageTest, AFailureEndsTheRun) {
    publish_error_ = io_error("cannot publish");
    EXPECT_EQ(run_with(0).outcome->error().message, "cannot publish");
    publish_error_.reset();
    keep_error_ = io_error("cannot keep");
    EXPECT_EQ(run_with(1).outcome->error().message, "cannot keep");
    keep_error_.reset();
    writer_.refuses_from = 7;
    const auto refused = run_with(1);
    EXPECT_THAT(refused.outcome->error().message,
                AllOf(StartsWith("rollout: micro-batch "), HasSubstr(": no (rejected, 1 attempts)")));
}

TEST_F(RolloutStageTest, ACancelledRunEnds) {
    student_.on_train = [this](std::uint64_t number) {
        if (number == 4) {
            boost::asio::post(*io_, [this] { graph_->cancel(); });
        }
    };
    const auto outcome = run_with(1);
    ASSERT_TRUE(outcome.outcome && *outcome.outcome) << outcome.thrown;
    EXPECT_TRUE((*outcome.outcome)->cancelled);
}

}  // namespace
}  // namespace distilld
