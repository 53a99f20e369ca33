#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/unit/pipeline/graph/graph_fixture.hpp"

namespace distilld::test {
namespace {

using namespace std::chrono_literals;
using ::testing::UnorderedElementsAreArray;

/// Trains on `together` micro-batches at once, and waits for as many before it begins.
class StudentOfReplicas final : public FakeStudent {
  public:
    MicroBatchStats train(StagedBatch& batch) override {
        std::unique_lock lock(mutex_);
        ++running_;
        most = std::max(most, running_);
        const std::size_t wanted = (arrived_++ / together + 1) * together;
        changed_.notify_all();
        alone = !changed_.wait_for(lock, 10s, [&] { return arrived_ >= wanted || released; }) || alone;
        const Leaving leaving(*this);
        return FakeStudent::train(batch);
    }
    StepStats finish_step(double learning_rate) override {
        const std::lock_guard lock(mutex_);
        stepped_beside_training = stepped_beside_training || running_ > 0;
        return FakeStudent::finish_step(learning_rate);
    }
    [[nodiscard]] std::size_t running() const { return running_; }

    std::size_t together = 1;
    std::size_t most = 0;
    bool alone = false;
    bool released = false;
    bool stepped_beside_training = false;

  private:
    struct Leaving {
        explicit Leaving(StudentOfReplicas& student) : of(student) {}
        ~Leaving() { --of.running_; }
        Leaving(const Leaving&) = delete;
        Leaving& operator=(const Leaving&) = delete;
        StudentOfReplicas& of;
    };

    std::mutex mutex_;
    std::condition_variable changed_;
    std::size_t running_ = 0;
    std::size_t arrived_ = 0;
};

class ReplicasTest : public TrainingGraphTest {
  protected:
    ReplicasTest() {
        replicas_ = 3;
        options_.training.micro_batches = 6;
    }
    Student& student() override { return of_replicas_; }

    StudentOfReplicas of_replicas_;
};

TEST_F(ReplicasTest, TrainOnTheMicroBatchesOfAStepAtOnce) {
    of_replicas_.together = 3;
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_FALSE(of_replicas_.alone);
    EXPECT_EQ(of_replicas_.most, 3U);
    EXPECT_FALSE(of_replicas_.stepped_beside_training);
    std::vector<std::string> steps;
    for (const std::string& line : of_replicas_.log) {
        if (line.starts_with("train") || line == "step") {
            steps.push_back(line);
        }
    }
    const std::vector<std::string> expected = expected_log(0, 5, 6);
    ASSERT_EQ(steps.size(), expected.size());
    for (std::size_t step = 0; step < 5; ++step) {
        const auto begin = static_cast<std::ptrdiff_t>(7 * step);
        EXPECT_THAT(std::vector(steps.begin() + begin, steps.begin() + begin + 7),
                    UnorderedElementsAreArray(expected.begin() + begin, expected.begin() + begin + 7));
        EXPECT_EQ(steps[7 * step + 6], "step");
    }
    EXPECT_EQ((*run.outcome)->last.tokens, 5U * 6 * 2 * 4);
}

TEST_F(ReplicasTest, SequentialModeTrainsOnOneAfterTheOther) {
    options_.training.parallel = false;
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_EQ(of_replicas_.most, 1U);
    EXPECT_EQ(teacher_.max_in_flight, 1);
}

TEST_F(ReplicasTest, AFailureOfOneEndsTheRunWhenTheOthersHaveEnded) {
    of_replicas_.together = 3;
    of_replicas_.on_train = [](std::uint64_t n) {
        if (n == 8) {
            throw std::runtime_error("no luck");
        }
    };
    const Outcome run = this->run(&teacher_);
    EXPECT_EQ(run.thrown, "no luck");
    EXPECT_EQ(of_replicas_.running(), 0U);
    EXPECT_EQ(std::ranges::count(of_replicas_.log, "step"), 1);
}

TEST_F(ReplicasTest, ACancelledRunEndsAfterTheMicroBatchesInProgress) {
    of_replicas_.together = 3;
    of_replicas_.on_train = [this](std::uint64_t n) {
        if (n == 7) {
            of_replicas_.released = true;  // under its lock: the next do not wait for more
            boost::asio::post(*io_, [this] { graph_->cancel(); });
        }
    };
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_TRUE((*run.outcome)->cancelled);
    EXPECT_LE((*run.outcome)->steps_done, 5U);
    EXPECT_GE((*run.outcome)->steps_done, 1U);
    EXPECT_EQ(of_replicas_.running(), 0U);
    EXPECT_FALSE(of_replicas_.alone);
}

}  // namespace
}  // namespace distilld::test
