#include "pipeline/graph/nonfinite_steps.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cmath>
#include <exception>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "pipeline/graph/training_graph.hpp"
#include "tests/support/fake_student.hpp"

namespace distilld {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

Instant at(Nanos since_start) {
    return Instant(since_start);
}

TEST(NonfiniteSteps, TooManyInARowAreAFailure) {
    NonfiniteSteps steps(3);
    const double nan = std::nan("");
    EXPECT_FALSE(steps.judge({1, false, nan, nan, 5, at(0s)}).failure);
    EXPECT_FALSE(steps.judge({2, false, nan, nan, 5, at(0s)}).failure);
    EXPECT_FALSE(steps.judge({3, true, 1.0, 1.0, 5, at(0s)}).failure);  // begins anew
    EXPECT_FALSE(steps.judge({4, false, nan, nan, 5, at(0s)}).failure);
    EXPECT_FALSE(steps.judge({5, false, nan, nan, 5, at(0s)}).failure);
    const auto verdict = steps.judge({6, false, nan, INFINITY, 5, at(0s)});
    ASSERT_TRUE(verdict.failure);
    EXPECT_EQ(verdict.failure->kind, ErrorKind::invalid_input);
    EXPECT_THAT(verdict.failure->message,
                HasSubstr("/training/max_nonfinite_steps: 3 steps in a row had to be skipped, the last of them step 6: "
                          "its loss is nan, its gradient norm is inf. The weights are those of step 3. Lower "
                          "training.learning_rate (it was 5)"));
    EXPECT_EQ(steps.total(), 5U);
}

TEST(NonfiniteSteps, WarnsAtOnceAndThenNowAndThen) {
    NonfiniteSteps steps(1000);
    const auto warning = [&](std::uint64_t number, bool finite, Nanos when) {
        return steps.judge({number, finite, std::nan(""), 1.0, 1, at(when)}).warning;
    };
    EXPECT_EQ(warning(1, true, 0s), "");
    EXPECT_THAT(warning(2, false, 1s), HasSubstr("step 2 was skipped: its loss is nan, its gradient norm is 1 (1 step "
                                                 "skipped so far, 1 in a row; the job fails at 1000 in a row)"));
    EXPECT_EQ(warning(3, false, 2s), "");
    EXPECT_EQ(warning(4, true, 3s), "");
    EXPECT_EQ(warning(5, false, 10s), "");
    EXPECT_THAT(warning(6, false, 11s), HasSubstr("(4 steps skipped so far, 2 in a row"));
}

class OneRow final : public Dataset {
  public:
    std::uint64_t row_count() const override { return 1; }
    std::uint64_t token_count() const override { return 1; }
    const std::string& hash() const override { return hash_; }
    TokenBatch batch(std::uint64_t number, const std::vector<std::uint64_t>& rows) const override {
        TokenBatch made;
        made.number = number;
        made.rows = 1;
        made.columns = 1;
        made.input_ids = {1};
        made.labels = {1};
        made.lengths = {1};
        made.row_ids = rows;
        made.target_tokens = 1;
        return made;
    }
    std::uint64_t target_tokens(std::uint64_t) const override { return 1; }

  private:
    std::string hash_ = "hash";
};

struct Ended {
    std::optional<Result<GraphOutcome>> outcome;
    std::vector<std::uint64_t> checkpoints;
    std::vector<std::string> warnings;
    std::uint64_t nonfinite_steps = 0;
};

Ended train(test::FakeStudent& student, std::uint64_t steps, std::uint64_t first_step = 0) {
    boost::asio::io_context io(1);
    boost::asio::thread_pool work(1);
    const GraphExecutors executors{io.get_executor(), work.get_executor(), work.get_executor(), work.get_executor()};
    Ended ended;
    GraphOptions options;
    options.total_steps = steps;
    options.first_step = first_step;
    GraphHooks hooks;
    hooks.on_event = [&](const WorkerEvent& event) {
        if (const auto* log = std::get_if<LogEvent>(&event)) {
            ended.warnings.push_back(log->message);
        } else if (const auto* progress = std::get_if<ProgressEvent>(&event)) {
            ended.nonfinite_steps = progress->nonfinite_steps;
        }
    };
    hooks.commit_checkpoint = [&](std::uint64_t step, const StudentSnapshot&) -> Result<std::string> {
        ended.checkpoints.push_back(step);
        return std::string("folder");
    };
    auto batches = std::make_shared<BatchSource>(std::make_shared<OneRow>(), BatchPlan(1, 1, 1), 1);
    const auto graph = make_training_graph(executors, student, batches, {}, options, hooks, nullptr);
    boost::asio::co_spawn(io, graph->run(), [&](const std::exception_ptr&, Result<GraphOutcome> outcome) {
        ended.outcome = std::move(outcome);
    });
    io.run();
    return ended;
}

TEST(NonfiniteSteps, EndARunAtTheDefaultAndLeaveACheckpoint) {
    test::FakeStudent student;
    student.on_step = [](std::uint64_t step) { return step < 4; };
    const Ended ended = train(student, 200);
    ASSERT_TRUE(ended.outcome && !ended.outcome->has_value());
    EXPECT_THAT(ended.outcome->error().message, HasSubstr("10 steps in a row had to be skipped, the last of them step "
                                                          "13"));
    EXPECT_THAT(ended.checkpoints, ElementsAre(13));
    EXPECT_THAT(ended.warnings, ElementsAre(HasSubstr("step 4 was skipped")));
    EXPECT_EQ(ended.nonfinite_steps, 10U);
}

TEST(NonfiniteSteps, ARunThatTrainsNothingFailsHoweverShort) {
    test::FakeStudent student;
    student.on_step = [](std::uint64_t) { return false; };
    const Ended ended = train(student, 3);
    ASSERT_TRUE(ended.outcome && !ended.outcome->has_value());
    EXPECT_THAT(ended.outcome->error().message, HasSubstr("3 steps in a row had to be skipped"));
    // The rest of a run that did train may be skipped.
    const Ended resumed = train(student, 3, 1);
    EXPECT_TRUE(resumed.outcome && resumed.outcome->has_value());
}

TEST(NonfiniteSteps, AFewThatPassAreNoFailure) {
    test::FakeStudent student;
    student.on_step = [](std::uint64_t step) { return step % 10 == 0; };
    const Ended ended = train(student, 40);
    ASSERT_TRUE(ended.outcome && ended.outcome->has_value());
    EXPECT_EQ(ended.nonfinite_steps, 36U);
    EXPECT_EQ(student.rates.size(), 40U);
}

}  // namespace
}  // namespace distilld
