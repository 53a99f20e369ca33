#include "pipeline/graph/training_graph.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <functional>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "pipeline/async/abort.hpp"
#include "tests/support/fake_student.hpp"
#include "tests/support/fake_teacher.hpp"

namespace distilld {
namespace {

using namespace std::chrono_literals;
using test::FakeStudent;
using test::FakeTeacher;

/// Rows of four positions, all with targets.
class SmallDataset final : public Dataset {
  public:
    std::uint64_t row_count() const override { return 10; }
    std::uint64_t token_count() const override { return 40; }
    const std::string& hash() const override { return hash_; }
    TokenBatch batch(std::uint64_t number, const std::vector<std::uint64_t>& rows) const override {
        TokenBatch made;
        made.number = number;
        made.rows = static_cast<std::uint32_t>(rows.size());
        made.columns = 4;
        made.input_ids.assign(rows.size() * 4, static_cast<std::int32_t>(rows.front()));
        made.labels.assign(rows.size() * 4, 1);
        made.lengths.assign(rows.size(), 4);
        made.row_ids = rows;
        made.target_tokens = rows.size() * 4;
        return made;
    }
    std::uint64_t target_tokens(std::uint64_t) const override { return 4; }

  private:
    std::string hash_ = "hash";
};

struct Outcome {
    std::optional<Result<GraphOutcome>> outcome;
    std::string thrown;
    bool aborted = false;  // it threw operation_aborted
    std::vector<WorkerEvent> events;
    std::vector<std::uint64_t> checkpoints;
};

/// A graph with its threads.
class TrainingGraphTest : public ::testing::Test {
  protected:
    TrainingGraphTest() {
        options_.training.micro_batches = 3;
        options_.training.batch_size = 2;
        options_.training.learning_rate = 1.0;
        options_.training.lr_scheduler_type = LrScheduler::constant;
        options_.total_steps = 5;
        options_.teacher.scheduler.limit.ceiling = 4;
        options_.teacher.scheduler.retry.base = 1ms;
        options_.teacher.deadline = 5s;
    }

    Outcome run(TeacherSource* source, std::vector<TokenBatch> eval = {}) {
        boost::asio::io_context io(1);
        boost::asio::thread_pool compute(1);
        boost::asio::thread_pool staging(1);
        boost::asio::thread_pool disk(1);
        boost::asio::thread_pool decode(1);
        Outcome result;
        GraphHooks hooks;
        hooks.on_event = [&result](const WorkerEvent& event) { result.events.push_back(event); };
        hooks.commit_checkpoint = [&](std::uint64_t step, const StudentSnapshot&) -> Result<std::string> {
            if (on_commit_) {
                on_commit_(step);
            }
            if (commit_error_) {
                return *commit_error_;
            }
            result.checkpoints.push_back(step);
            return "step-" + std::to_string(step);
        };
        auto batches = std::make_shared<BatchSource>(std::make_shared<SmallDataset>(),
                                                     BatchPlan(10, options_.training.batch_size, 1),
                                                     options_.training.micro_batches);
        const GraphExecutors executors{io.get_executor(), compute.get_executor(), staging.get_executor(),
                                       disk.get_executor(), decode.get_executor()};
        auto graph =
            make_training_graph(executors, student_, source, batches, std::move(eval), options_, hooks, nullptr);
        graph_ = graph.get();
        io_ = &io;
        auto ended = [this, &result](const std::exception_ptr& thrown, Result<GraphOutcome> outcome) {
            if (on_ended_) {
                on_ended_();
            }
            result.aborted = is_abort(thrown);
            if (!thrown) {
                result.outcome = std::move(outcome);
                return;
            }
            try {
                std::rethrow_exception(thrown);
            } catch (const std::exception& error) {
                result.thrown = error.what();
            }
        };
        boost::asio::co_spawn(io, graph->run(), boost::asio::bind_cancellation_slot(stop_.slot(), std::move(ended)));
        io.run();
        compute.join();
        staging.join();
        disk.join();
        decode.join();
        return result;
    }

    /// train 0, train 1, train 2, step, train 3 …
    static std::vector<std::string> expected_log(std::uint64_t first_step, std::uint64_t steps, std::uint64_t m) {
        std::vector<std::string> log;
        for (std::uint64_t step = first_step; step < steps; ++step) {
            for (std::uint64_t i = 0; i < m; ++i) {
                log.push_back("train " + std::to_string(step * m + i));
            }
            log.emplace_back("step");
        }
        return log;
    }

    std::vector<std::string> training_log() const {
        std::vector<std::string> log;
        for (const std::string& line : student_.log) {
            if (line.rfind("snapshot", 0) != 0 && line != "evaluate") {
                log.push_back(line);
            }
        }
        return log;
    }

    FakeStudent student_;
    FakeTeacher teacher_;
    GraphOptions options_;
    std::optional<Error> commit_error_;
    std::function<void(std::uint64_t)> on_commit_;  // on the disk thread
    std::function<void()> on_ended_;
    boost::asio::cancellation_signal stop_;
    TrainingGraph* graph_ = nullptr;
    boost::asio::io_context* io_ = nullptr;
};

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
    EXPECT_EQ(stages,
              (std::vector<std::string>{"plan", "teacher", "decode", "staging", "student", "optimizer", "recorder"}));
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
    options_.teacher.scheduler.hedge.enabled = false;
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

TEST_F(TrainingGraphTest, RejectionFailsTheRunAndKeepsWhatWasTrained) {
    teacher_.decide = [](std::uint64_t n, std::size_t) {
        FakeTeacher::Fate fate{100us, {}};
        if (n == 7) {
            fate.latency = 20ms;  // those before it are decoded by then
            fate.failure = FetchError{FailureKind::rejected, "http://t/: 400 token out of vocabulary", {}};
        }
        return fate;
    };
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome) << run.thrown;
    ASSERT_TRUE(run.outcome->has_error());
    EXPECT_EQ(run.outcome->error().kind, ErrorKind::teacher);
    EXPECT_NE(run.outcome->error().message.find("token out of vocabulary"), std::string::npos);
    EXPECT_NE(run.outcome->error().message.find("micro-batch 7"), std::string::npos);
    EXPECT_EQ(run.checkpoints, std::vector<std::uint64_t>{2}) << "the last whole step before micro-batch 7";
}

TEST_F(TrainingGraphTest, CancelWhileTheTeacherHangsCheckpointsTheLastStep) {
    teacher_.decide = [](std::uint64_t n, std::size_t) {
        return FakeTeacher::Fate{n < 4 ? std::chrono::microseconds(100) : std::chrono::microseconds(60'000'000), {}};
    };
    options_.teacher.deadline = 60s;
    student_.on_train = [this](std::uint64_t n) {
        if (n != 3) {
            return;
        }
        boost::asio::post(*io_, [this] { graph_->cancel(); });
    };
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_TRUE((*run.outcome)->cancelled);
    EXPECT_EQ((*run.outcome)->steps_done, 1U);
    EXPECT_EQ(run.checkpoints, std::vector<std::uint64_t>{1});
    EXPECT_EQ(teacher_.in_flight, 0) << "requests under way were cancelled and waited for";
}

TEST_F(TrainingGraphTest, CheckpointsComeAtTheirSteps) {
    options_.checkpoint_every = 2;
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_EQ(run.checkpoints, (std::vector<std::uint64_t>{2, 4, 5}));
}

TEST_F(TrainingGraphTest, ACheckpointThatCannotBeWrittenFailsTheRun) {
    options_.checkpoint_every = 1;
    commit_error_ = io_error("/out: no space left on device");
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome) << run.thrown;
    ASSERT_TRUE(run.outcome->has_error());
    EXPECT_EQ(run.outcome->error().kind, ErrorKind::io);
}

TEST_F(TrainingGraphTest, ResumedRunContinuesTheNumbers) {
    options_.first_step = 3;
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_EQ(training_log(), expected_log(3, 5, 3));
    EXPECT_EQ(teacher_.asked.front(), 9U);
}

TEST_F(TrainingGraphTest, ExceptionsOfAnyStageEndTheRun) {
    student_.on_train = [](std::uint64_t n) {
        if (n == 4) {
            throw std::runtime_error("out of memory");
        }
    };
    EXPECT_EQ(run(&teacher_).thrown, "out of memory");
    student_.on_train = {};
    student_.on_stage = [](const MicroBatch& batch) {
        if (batch.tokens->number == 4) {
            throw std::runtime_error("bad tensor");
        }
    };
    EXPECT_EQ(run(&teacher_).thrown, "bad tensor");
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

TEST_F(TrainingGraphTest, NoCopyIsTakenBeforeTheOneBeforeItIsWritten) {
    options_.checkpoint_every = 1;
    std::mutex mutex;
    std::vector<std::string> log;
    const auto note = [&mutex, &log](const char* what, std::uint64_t step) {
        const std::lock_guard lock(mutex);
        log.push_back(what + std::to_string(step));
    };
    student_.on_snapshot = [&note](std::uint64_t step) { note("copied ", step); };
    on_commit_ = [&note](std::uint64_t step) {
        std::this_thread::sleep_for(5ms);  // steps take microseconds
        note("written ", step);
    };
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    std::vector<std::string> expected;
    for (int step = 1; step <= 5; ++step) {
        expected.push_back("copied " + std::to_string(step));
        expected.push_back("written " + std::to_string(step));
    }
    EXPECT_EQ(log, expected);
}

TEST_F(TrainingGraphTest, ACheckpointUnderWayIsAwaitedWhateverEndsTheRun) {
    enum class End { student, staging, caller };
    options_.checkpoint_every = 1;
    for (const End end : {End::student, End::staging, End::caller}) {
        std::atomic<bool> over{false};  // what ends the run has happened
        std::atomic<bool> written{false};
        bool written_in_time = false;
        on_commit_ = [&](std::uint64_t) {
            while (!over) {
                std::this_thread::yield();
            }
            std::this_thread::sleep_for(20ms);
            written = true;
        };
        on_ended_ = [&] { written_in_time = written; };
        student_.on_train = [&, end](std::uint64_t n) {
            if (n != 4 || end == End::staging) {
                return;
            }
            over = true;
            if (end == End::student) {
                throw std::runtime_error("out of memory");
            }
            boost::asio::post(*io_, [this] { stop_.emit(boost::asio::cancellation_type::terminal); });
        };
        student_.on_stage = [&, end](const MicroBatch& batch) {
            if (batch.tokens->number == 7 && end == End::staging) {
                over = true;
                throw std::runtime_error("bad tensor");
            }
        };
        const Outcome run = this->run(&teacher_);
        EXPECT_FALSE(run.outcome.has_value());
        EXPECT_EQ(run.aborted, end == End::caller) << run.thrown;
        EXPECT_TRUE(written_in_time) << static_cast<int>(end);
        EXPECT_EQ(run.checkpoints, std::vector<std::uint64_t>{1});
        EXPECT_EQ(teacher_.in_flight, 0);
    }
}

TEST_F(TrainingGraphTest, WhatACheckpointsWriteThrowsEndsTheRun) {
    options_.checkpoint_every = 1;
    on_commit_ = [](std::uint64_t) { throw std::runtime_error("no such disk"); };
    EXPECT_EQ(run(&teacher_).thrown, "no such disk");
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
    SmallDataset data;
    const Outcome run = this->run(&teacher_, {data.batch(0, {0, 1}), data.batch(1, {2})});
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

TEST_F(TrainingGraphTest, IdleTimeAppliesPendingUpdates) {
    teacher_.decide = [](std::uint64_t, std::size_t) { return FakeTeacher::Fate{3ms, {}}; };
    options_.teacher.scheduler.limit.ceiling = 1;  // the student waits after each step
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_GT(student_.idle_updates, 0);
    EXPECT_LE(student_.idle_updates, 5 * FakeStudent::kUpdatesOfAStep);
}

}  // namespace
}  // namespace distilld
