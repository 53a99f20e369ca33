// What the teacher stage does beside fetching, seen in a whole graph: it tells of outages, and asks nobody twice in
// plain training. Outages themselves are the simulation's matter.
#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pipeline/graph/training_graph.hpp"
#include "tests/support/fake_student.hpp"
#include "tests/support/fake_teacher.hpp"

namespace distilld {
namespace {

using namespace std::chrono_literals;
using test::FakeStudent;
using test::FakeTeacher;

/// Rows of one position; counts how often a micro-batch is made.
class CountingDataset final : public Dataset {
  public:
    std::uint64_t row_count() const override { return 10; }
    std::uint64_t token_count() const override { return 10; }
    const std::string& hash() const override { return hash_; }
    TokenBatch batch(std::uint64_t number, const std::vector<std::uint64_t>& rows) const override {
        {
            const std::lock_guard lock(mutex_);
            ++made_[number];
        }
        if (number == 20) {
            std::this_thread::sleep_for(50ms);
        }
        TokenBatch batch;
        batch.number = number;
        batch.rows = static_cast<std::uint32_t>(rows.size());
        batch.columns = 1;
        batch.input_ids.assign(rows.size(), 0);
        batch.labels.assign(rows.size(), 1);
        batch.lengths.assign(rows.size(), 1);
        batch.row_ids = rows;
        batch.target_tokens = rows.size();
        return batch;
    }
    std::uint64_t target_tokens(std::uint64_t) const override { return 1; }

    std::map<std::uint64_t, int> made() const {
        const std::lock_guard lock(mutex_);
        return made_;
    }

  private:
    std::string hash_ = "hash";
    mutable std::mutex mutex_;
    mutable std::map<std::uint64_t, int> made_;
};

/// Its optimizer takes far longer than its training.
class SlowOptimizerStudent final : public FakeStudent {
  public:
    StepStats finish_step(double learning_rate) override {
        std::this_thread::sleep_for(20ms);
        return FakeStudent::finish_step(learning_rate);
    }
};

class TeacherStageTest : public ::testing::Test {
  protected:
    TeacherStageTest() {
        options_.training.micro_batches = 1;
        options_.training.batch_size = 1;
        options_.total_steps = 50;
        asking_.scheduler.retry.base = 1ms;
        asking_.scheduler.breaker.cooldown = 10ms;
        asking_.watch.grace = 20ms;
    }

    Result<GraphOutcome> run(Student& student, TeacherSource* source) {
        boost::asio::io_context io(1);
        boost::asio::thread_pool compute(1);
        boost::asio::thread_pool staging(1);
        boost::asio::thread_pool disk(1);
        GraphHooks hooks;
        hooks.on_event = [this](const WorkerEvent& event) { events_.push_back(event); };
        hooks.commit_checkpoint = [](std::uint64_t, const StudentSnapshot&) { return Result<std::string>("folder"); };
        auto batches = std::make_shared<BatchSource>(dataset_, BatchPlan(10, 1, 1), 1);
        const GraphExecutors executors{io.get_executor(), compute.get_executor(), staging.get_executor(),
                                       disk.get_executor()};
        options_.teachers = {{"", source, asking_}};
        auto graph = make_training_graph(executors, student, batches, {}, options_, hooks, nullptr);
        std::optional<Result<GraphOutcome>> outcome;
        boost::asio::co_spawn(io, graph->run(), [&](const std::exception_ptr& thrown, Result<GraphOutcome> ended) {
            EXPECT_FALSE(thrown);
            outcome = std::move(ended);
        });
        io.run();
        compute.join();
        staging.join();
        disk.join();
        return *outcome;
    }

    std::vector<WaitingEvent> waits() const {
        std::vector<WaitingEvent> found;
        for (const WorkerEvent& event : events_) {
            if (const auto* waiting = std::get_if<WaitingEvent>(&event)) {
                found.push_back(*waiting);
            }
        }
        return found;
    }

    std::shared_ptr<CountingDataset> dataset_ = std::make_shared<CountingDataset>();
    FakeTeacher teacher_;
    GraphOptions options_;
    TeacherStageOptions asking_;
    std::vector<WorkerEvent> events_;
};

TEST_F(TeacherStageTest, PlainTrainingPlansNoBatchTwice) {
    asking_.scheduler.limit.ceiling = 64;  // a free slot is what a hedge takes
    FakeStudent student;
    ASSERT_TRUE(run(student, nullptr).has_value());
    const std::map<std::uint64_t, int> made = dataset_->made();
    EXPECT_EQ(made.size(), 50U);
    for (const auto& [number, times] : made) {
        EXPECT_EQ(times, 1) << "micro-batch " << number;
    }
}

TEST_F(TeacherStageTest, AnOutageIsWarnedOfShownAndOver) {
    asking_.watch.repeat = 0ms;
    const auto is_outage = [](const WaitingEvent& wait) {
        return wait.message.find("http://t: HTTP 503") != std::string::npos;
    };
    const auto is_warning = [](const WorkerEvent& event) {
        const auto* log = std::get_if<LogEvent>(&event);
        return log != nullptr && log->level == "warn";
    };
    // However slow the machine is: the outage lasts until it is reported, and the endpoint is left out.
    teacher_.decide = [&](std::uint64_t, std::size_t call) {
        const bool reported = std::ranges::any_of(waits(), is_outage) && std::ranges::count_if(events_, is_warning) > 1;
        const bool out = call > 5 && !reported;
        return out ? FakeTeacher::Fate{0us, FetchError{FailureKind::overloaded, "http://t: HTTP 503", {}}}
                   : FakeTeacher::Fate{100us, {}};
    };
    FakeStudent student;
    const Result<GraphOutcome> outcome = run(student, &teacher_);
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    EXPECT_EQ(outcome->steps_done, 50U);
    const std::vector<WaitingEvent> waits = this->waits();
    // A slow machine may also see a hang.
    const auto outage = std::ranges::find_if(waits, is_outage);
    ASSERT_LT(outage, waits.end() - 1);
    EXPECT_EQ(outage->code, "teacher_unavailable");
    EXPECT_GT(outage->since, 1.7e9);
    EXPECT_EQ((outage + 1)->code, "");
    EXPECT_TRUE((outage + 1)->message.starts_with("the teacher answers again, after ")) << (outage + 1)->message;
    EXPECT_EQ(std::ranges::count_if(events_, is_warning), 2) << "the failures, and that the endpoint is left out";
}

TEST_F(TeacherStageTest, AHangIsShownAndOver) {
    teacher_.decide = [](std::uint64_t, std::size_t) { return FakeTeacher::Fate{100us, {}}; };
    // However slow the machine makes the other answers: a hang is twice what is usual.
    teacher_.hold = [this](std::uint64_t number) { return number == 20 && waits().empty(); };
    FakeStudent student;
    const Result<GraphOutcome> outcome = run(student, &teacher_);
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    const std::vector<WaitingEvent> waits = this->waits();
    ASSERT_EQ(waits.size(), 2U);
    EXPECT_TRUE(waits[0].message.starts_with("no answer from ")) << waits[0].message;
    EXPECT_EQ(waits[1].message, "the teacher answers again, after 1 s");
    const ProgressEvent& last = outcome->last;
    EXPECT_GT(last.tokens_per_second * last.seconds_elapsed, static_cast<double>(last.tokens)) << "less what was lost";
}

/// Takes longer for each step than a hang has to last to be reported.
class BusyStudent final : public FakeStudent {
  public:
    MicroBatchStats train(StagedBatch& batch) override {
        std::this_thread::sleep_for(60ms);
        return FakeStudent::train(batch);
    }
};

TEST_F(TeacherStageTest, AHangThatBeganWhileTheStudentWasBusyIsShownToo) {
    options_.total_steps = 4;
    teacher_.decide = [](std::uint64_t, std::size_t) { return FakeTeacher::Fate{100us, {}}; };
    teacher_.hold = [this](std::uint64_t number) { return number == 2 && waits().empty(); };
    BusyStudent student;
    ASSERT_TRUE(run(student, &teacher_).has_value());
    EXPECT_EQ(waits().size(), 2U);
}

TEST_F(TeacherStageTest, WhenPatienceIsOverTheErrorSaysWhatWasWaitedForAndHowLong) {
    asking_.scheduler.retry.outage_timeout = 200ms;
    teacher_.decide = [](std::uint64_t, std::size_t) {
        return FakeTeacher::Fate{0us, FetchError{FailureKind::connection, "http://t: connection refused", {}}};
    };
    FakeStudent student;
    const Result<GraphOutcome> outcome = run(student, &teacher_);
    ASSERT_FALSE(outcome.has_value());
    EXPECT_NE(outcome.error().message.find("no endpoint has answered for"), std::string::npos);
    EXPECT_NE(outcome.error().message.find("/teacher/patience_secs"), std::string::npos);
    EXPECT_NE(outcome.error().message.find("http://t: connection refused"), std::string::npos);
    ASSERT_FALSE(waits().empty());
    EXPECT_EQ(waits().back().code + waits().back().message, "") << "nothing is waited for any more, and nothing came";
}

// Eight retries are for faults that may pass.
TEST_F(TeacherStageTest, RowsThatNobodyCanUseAreAskedForTwice) {
    teacher_.unusable = true;
    teacher_.decode = [](std::uint64_t micro_batch) -> std::optional<std::string> {
        return micro_batch == 5 ? std::optional<std::string>("http://t: token id 600 is none") : std::nullopt;
    };
    FakeStudent student;
    const Result<GraphOutcome> outcome = run(student, &teacher_);
    ASSERT_FALSE(outcome.has_value());
    EXPECT_EQ(outcome.error().message, "micro-batch 5: http://t: token id 600 is none (rejected, 2 attempts)");
}

TEST_F(TeacherStageTest, OtherFaultsMayPass) {
    int faults = 0;
    teacher_.unusable = true;
    teacher_.decode = [&](std::uint64_t micro_batch) -> std::optional<std::string> {
        return micro_batch == 5 && ++faults < 5 ? std::optional("http://t: fault " + std::to_string(faults))
                                                : std::nullopt;
    };
    FakeStudent student;
    EXPECT_TRUE(run(student, &teacher_).has_value()) << "none is the same as the one before";
}

TEST_F(TeacherStageTest, EveryRequestThatWasSentIsCountedWithItsOutcomeAndItsDuration) {
    asking_.scheduler.hedge.enabled = false;
    teacher_.decide = [](std::uint64_t, std::size_t call) {
        if (call == 7) {
            return FakeTeacher::Fate{30ms, FetchError{FailureKind::overloaded, "http://t: HTTP 503", {}}};
        }
        return FakeTeacher::Fate{call == 20 ? 150ms : 100us, {}};
    };
    bool spoilt = false;
    teacher_.decode = [&](std::uint64_t micro_batch) -> std::optional<std::string> {
        if (micro_batch != 30 || std::exchange(spoilt, true)) {
            return std::nullopt;
        }
        return "http://t: not what it should be";
    };
    FakeStudent student;
    const Result<GraphOutcome> outcome = run(student, &teacher_);
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    const ProgressEvent& last = outcome->last;
    ASSERT_EQ(last.fetch.requests, 52U);
    ASSERT_EQ(last.fetch.endpoints.size(), 1U);
    const EndpointCounters& endpoint = last.fetch.endpoints.front();
    EXPECT_EQ(endpoint.endpoint, "fake");
    EXPECT_EQ(endpoint.in_flight, 0U);
    EXPECT_GE(endpoint.limit, 1U);
    EXPECT_FALSE(endpoint.open);
    const std::map<std::string, std::uint64_t> outcomes{{"bad_response", 1}, {"overloaded", 1}, {"success", 50}};
    EXPECT_EQ(endpoint.outcomes, outcomes);
    EXPECT_EQ(endpoint.retries, 2U);
    EXPECT_EQ(endpoint.hedges, 0U);
    EXPECT_GT(endpoint.latency_seconds, 0.001);
    EXPECT_LT(endpoint.latency_seconds, last.durations.requests.back().seconds.sum_seconds);
    EXPECT_EQ(endpoint.tokens, 50U) << "one position a micro-batch; what could not be decoded is no answer";
    EXPECT_EQ(endpoint.bytes_received, last.fetch.bytes_received);
    EXPECT_EQ(endpoint.bytes_received, 51U * FakeTeacher::kWireBytes) << "what could not be decoded came over the wire";

    ASSERT_EQ(last.durations.requests.size(), 2U);
    const RequestDurations& failure = last.durations.requests[0];
    const RequestDurations& success = last.durations.requests[1];
    EXPECT_EQ(failure.outcome, "failure");
    EXPECT_EQ(success.outcome, "success");
    EXPECT_EQ(success.endpoint, "fake");
    const auto total = [](const DurationCounts& seconds) {
        return std::accumulate(seconds.counts.begin(), seconds.counts.end(), std::uint64_t{0});
    };
    EXPECT_EQ(total(failure.seconds), 2U);
    EXPECT_GE(failure.seconds.sum_seconds, 0.03);
    EXPECT_EQ(total(success.seconds), 50U);
    EXPECT_GE(success.seconds.sum_seconds, 0.15);
    EXPECT_EQ(total(last.durations.steps), 50U);
    EXPECT_NEAR(last.durations.steps.sum_seconds, last.seconds_elapsed, 1e-6);
}

TEST_F(TeacherStageTest, ARequestThatItsHedgeBeatIsNoFailure) {
    asking_.scheduler.limit.ceiling = 4;
    teacher_.decide = [](std::uint64_t, std::size_t call) { return FakeTeacher::Fate{call == 30 ? 2s : 1ms, {}}; };
    FakeStudent student;
    const Result<GraphOutcome> outcome = run(student, &teacher_);
    ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
    const std::map<std::string, std::uint64_t>& outcomes = outcome->last.fetch.endpoints.front().outcomes;
    EXPECT_GE(outcomes.at("success"), 50U) << "two that come at once have both been answered";
    EXPECT_GE(outcomes.at("cancelled"), 1U);
    EXPECT_EQ(outcomes.size(), 2U);
    const FetchCounters& fetch = outcome->last.fetch;
    EXPECT_GE(fetch.hedge_wins, 1U);
    EXPECT_EQ(fetch.endpoints.front().hedge_wins, fetch.hedge_wins);
    EXPECT_EQ(fetch.endpoints.front().hedges, fetch.hedges);
}

TEST_F(TeacherStageTest, TheStudentsBusyTimeIsTrainingAlone) {
    options_.total_steps = 5;
    SlowOptimizerStudent student;
    const Result<GraphOutcome> outcome = run(student, &teacher_);
    ASSERT_TRUE(outcome.has_value());
    std::map<std::string, StageTimes> stages;
    for (const StageTimes& stage : outcome->last.stages) {
        stages[stage.stage] = stage;
    }
    EXPECT_GE(stages["optimizer"].busy_seconds, 0.08);
    EXPECT_LT(stages["student"].busy_seconds, stages["optimizer"].busy_seconds);
    EXPECT_GE(stages["student"].wait_output_seconds, stages["optimizer"].busy_seconds / 2);
}

}  // namespace
}  // namespace distilld
