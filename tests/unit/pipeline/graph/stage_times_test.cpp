// Whose time is whose, by a clock that only the student's calls move.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "tests/unit/pipeline/graph/graph_fixture.hpp"

namespace distilld::test {
namespace {

using namespace std::chrono_literals;

constexpr Nanos kTrain = 10ms;
constexpr Nanos kFinish = 5ms;
constexpr Nanos kUpdate = 1ms;
constexpr Nanos kEvaluate = 100ms;
constexpr Nanos kSnapshot = 7ms;

class StageTimesTest : public TrainingGraphTest {
  protected:
    StageTimesTest() {
        options_.now = [this] { return Instant(Nanos(now_.load())); };
        student_.on_train = [this](std::uint64_t) { pass(kTrain); };
        student_.on_step = [this](std::uint64_t) {
            pass(kFinish);
            return true;
        };
        student_.on_update = [this] {
            pass(kUpdate);
            return to_seconds(kUpdate);
        };
        student_.on_evaluate = [this] { pass(kEvaluate); };
        student_.on_snapshot = [this](std::uint64_t) { pass(kSnapshot); };
    }

    void pass(Nanos time) { now_ += time.count(); }

    static std::map<std::string, StageTimes> by_name(const ProgressEvent& progress) {
        std::map<std::string, StageTimes> stages;
        for (const StageTimes& stage : progress.stages) {
            stages[stage.stage] = stage;
        }
        return stages;
    }

    std::atomic<std::int64_t> now_{1};
};

// Five steps of three micro-batches, an evaluation and a checkpoint after the second, the fourth and the last: each
// second is somebody's, and nothing is left over.
TEST_F(StageTimesTest, TheStudentsBusyTimeIsItsOwnAndEachOtherStageHasItsShare) {
    options_.training.eval_steps = 2;
    options_.checkpoint.every_steps = 2;
    const std::int64_t began = now_;
    std::int64_t trained = 0;
    ProgressEvent last;
    on_event_ = [&](const WorkerEvent& event) {
        if (const auto* progress = std::get_if<ProgressEvent>(&event)) {
            last = *progress;
            trained = now_;
        }
    };
    const Outcome outcome = run(&teacher_, held_out({{0, 1}, {2, 3}}));
    ASSERT_TRUE(outcome.outcome && *outcome.outcome) << outcome.thrown;
    auto stages = by_name((*outcome.outcome)->last);
    const double updates = 5 * FakeStudent::kUpdatesOfAStep * to_seconds(kUpdate);
    EXPECT_NEAR(stages["student"].busy_seconds, 15 * to_seconds(kTrain), 1e-9);
    EXPECT_NEAR(stages["optimizer"].busy_seconds, 5 * to_seconds(kFinish) + updates, 1e-9);
    EXPECT_NEAR(stages["evaluation"].busy_seconds, 3 * 2 * to_seconds(kEvaluate), 1e-9);
    EXPECT_NEAR(stages["snapshot"].busy_seconds, 3 * to_seconds(kSnapshot), 1e-9);
    const StageTimes& student = stages["student"];
    EXPECT_NEAR(student.busy_seconds + student.wait_input_seconds + student.wait_output_seconds,
                to_seconds(Nanos(trained - began)), 1e-9);
    EXPECT_LE(student.wait_input_seconds, updates + 1e-9) << "but for updates, nothing happened while it waited";
    const double all = stages["student"].busy_seconds + stages["optimizer"].busy_seconds +
                       stages["evaluation"].busy_seconds + stages["snapshot"].busy_seconds;
    EXPECT_NEAR(all, to_seconds(Nanos(now_ - began)), 1e-9);
    EXPECT_NEAR(by_name(last)["evaluation"].busy_seconds, 2 * 2 * to_seconds(kEvaluate), 1e-9) << "until the last step";
}

TEST_F(StageTimesTest, ThePlacesBetweenTheStagesAreBounded) {
    std::atomic<int> decoded{0};
    std::atomic<int> staged{0};
    teacher_.decode = [&decoded](std::uint64_t) {
        ++decoded;
        return std::nullopt;
    };
    student_.on_stage = [&staged](const MicroBatch&) { ++staged; };
    std::size_t told = 0;
    on_event_ = [&](const WorkerEvent& event) {
        const auto* progress = std::get_if<ProgressEvent>(&event);
        if (progress == nullptr) {
            return;
        }
        ++told;
        std::map<std::string, StageQueue> queues;
        for (const StageQueue& queue : progress->measures.queues) {
            EXPECT_LE(queue.items, queue.capacity) << queue.stage;
            EXPECT_GE(queue.capacity, 1U) << queue.stage;
            queues[queue.stage] = queue;
        }
        EXPECT_EQ(queues.size(), 4U);
        EXPECT_EQ(queues["staging"].capacity, progress->fetch.window);
        EXPECT_EQ(queues["decode"].capacity, progress->fetch.concurrency);
        EXPECT_EQ(queues["student"].capacity, 1U);
        EXPECT_EQ(queues["recorder"].capacity, 1U);
        if (progress->step == 3) {
            EXPECT_EQ(queues["staging"].items, 4U) << "of the window of 6, one is staged and one in its hands";
            EXPECT_EQ(queues["student"].items, 1U);
        }
    };
    // All that may be asked for is there before the third step ends.
    asking_.scheduler.window.size = 6;
    options_.total_steps = 6;
    student_.on_step = [&](std::uint64_t step) {
        const auto outage_timeout = std::chrono::steady_clock::now() + 20s;
        while (step == 3 && (decoded < 15 || staged < 11) && std::chrono::steady_clock::now() < outage_timeout) {
            std::this_thread::sleep_for(1ms);
        }
        std::this_thread::sleep_for(step == 3 ? 50ms : 0ms);  // what was decoded last reaches its place
        return true;
    };
    const Outcome outcome = run(&teacher_);
    ASSERT_TRUE(outcome.outcome && *outcome.outcome) << outcome.thrown;
    EXPECT_EQ(told, 6U);
}

TEST(StageClock, RebooksAtMostWhatThereIs) {
    Instant now{};
    StageClock clock(Stage::student, [&now] { return now; });
    clock.enter(StageClock::State::busy);
    now += 10ms;
    clock.enter(StageClock::State::wait_output);
    clock.rebook(StageClock::State::busy, StageClock::State::wait_output, 4ms);
    EXPECT_NEAR(clock.times().busy_seconds, 0.006, 1e-12);
    EXPECT_NEAR(clock.times().wait_output_seconds, 0.004, 1e-12);
    clock.rebook(StageClock::State::busy, StageClock::State::wait_output, 1s);
    EXPECT_EQ(clock.times().busy_seconds, 0.0);
    EXPECT_NEAR(clock.times().wait_output_seconds, 0.010, 1e-12);
}

}  // namespace
}  // namespace distilld::test
