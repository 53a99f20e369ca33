#include "pipeline/graph/training_graph.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "tests/unit/pipeline/graph/graph_fixture.hpp"

namespace distilld {
namespace {

using namespace std::chrono_literals;
using test::FakeTeacher;
using test::Outcome;
using test::SmallDataset;
using test::TrainingGraphTest;

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
    asking_.deadline = 60s;
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

TEST_F(TrainingGraphTest, ACancelledRunThatForgoesItsLastCheckpointEndsWithTheOneBefore) {
    options_.checkpoint.every_steps = 2;
    student_.on_train = [this](std::uint64_t n) {
        if (n != 8) {  // the last micro-batch of the third step
            return;
        }
        boost::asio::post(*io_, [this] {
            graph_->forgo_last_checkpoint();
            graph_->cancel();
        });
    };
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    const GraphOutcome& outcome = **run.outcome;
    EXPECT_TRUE(outcome.cancelled);
    EXPECT_EQ(outcome.steps_done, 3U);
    EXPECT_EQ(outcome.checkpoint, "step-2");
    EXPECT_EQ(run.checkpoints, std::vector<std::uint64_t>{2});
}

TEST_F(TrainingGraphTest, CheckpointsComeAtTheirSteps) {
    options_.checkpoint.every_steps = 2;
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_EQ(run.checkpoints, (std::vector<std::uint64_t>{2, 4, 5}));
}

TEST_F(TrainingGraphTest, ACheckpointThatCannotBeWrittenFailsTheRun) {
    options_.checkpoint.every_steps = 1;
    commit_error_ = io_error("/out: no space left on device");
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome) << run.thrown;
    ASSERT_TRUE(run.outcome->has_error());
    EXPECT_EQ(run.outcome->error().kind, ErrorKind::io);
}

TEST_F(TrainingGraphTest, AFullDiskIsSaidAndACancelGivesUpWithWhatIsThere) {
    options_.checkpoint.every_steps = 2;
    on_commit_ = [this](std::uint64_t step) {
        if (step == 4) {
            commit_error_ = Error{ErrorKind::disk_full, "/out: no space"};
        }
    };
    on_event_ = [this](const WorkerEvent& event) {
        if (std::holds_alternative<WaitingEvent>(event)) {
            boost::asio::post(*io_, [this] { graph_->cancel(); });
        }
    };
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    const GraphOutcome& outcome = **run.outcome;
    EXPECT_TRUE(outcome.cancelled);
    EXPECT_EQ(outcome.checkpoint, "step-2");
    EXPECT_EQ(run.checkpoints, std::vector<std::uint64_t>{2});
    std::vector<std::string> codes;
    bool warned = false;
    for (const WorkerEvent& event : run.events) {
        if (const auto* waiting = std::get_if<WaitingEvent>(&event)) {
            codes.push_back(waiting->code);
        }
        if (const auto* log = std::get_if<LogEvent>(&event)) {
            warned = warned || log->message.find("was abandoned: /out: no space") != std::string::npos;
        }
    }
    EXPECT_EQ(codes, (std::vector<std::string>{"disk_full", ""}));
    EXPECT_TRUE(warned);
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

TEST_F(TrainingGraphTest, NoCopyIsTakenBeforeTheOneBeforeItIsWritten) {
    options_.checkpoint.every_steps = 1;
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
    enum class End { student, staging, teacher, caller };
    options_.checkpoint.every_steps = 1;
    for (const End end : {End::student, End::staging, End::teacher, End::caller}) {
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
        dataset_->on_batch = [&, end](std::uint64_t number) {
            if (number == 9 && end == End::teacher) {
                over = true;
                throw std::runtime_error("a row that cannot be read");
            }
        };
        student_.on_train = [&, end](std::uint64_t n) {
            if (n != 4 || end == End::staging || end == End::teacher) {
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
        // What the teacher stage throws is the run's error; then the last whole step is saved as well.
        EXPECT_TRUE(end == End::teacher ? run.outcome && run.outcome->has_error() : !run.outcome.has_value());
        EXPECT_EQ(run.aborted, end == End::caller) << run.thrown;
        EXPECT_TRUE(written_in_time) << static_cast<int>(end);
        ASSERT_FALSE(run.checkpoints.empty());
        EXPECT_EQ(run.checkpoints.front(), 1U);
        EXPECT_EQ(run.checkpoints.size() == 1, end != End::teacher);
        EXPECT_EQ(teacher_.in_flight, 0);
    }
}

TEST_F(TrainingGraphTest, WhatACheckpointsWriteThrowsEndsTheRun) {
    options_.checkpoint.every_steps = 1;
    on_commit_ = [](std::uint64_t) { throw std::runtime_error("no such disk"); };
    EXPECT_EQ(run(&teacher_).thrown, "no such disk");
}

TEST_F(TrainingGraphTest, TheLastCheckpointComesBeforeTheLastEvaluation) {
    std::vector<std::string> order;
    on_event_ = [&order](const WorkerEvent& event) {
        if (std::holds_alternative<CheckpointEvent>(event)) {
            order.emplace_back("checkpoint");
        } else if (std::holds_alternative<EvaluationEvent>(event)) {
            order.emplace_back("evaluation");
        }
    };
    const Outcome run = this->run(&teacher_, held_out({{0}}));
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_EQ(order, (std::vector<std::string>{"checkpoint", "evaluation"}));
    EXPECT_FALSE((*run.outcome)->cancelled);
}

TEST_F(TrainingGraphTest, ACancelEndsTheLastEvaluationBetweenBatches) {
    student_.on_evaluate = [this] { boost::asio::post(*io_, [this] { graph_->cancel(); }); };
    const Outcome run = this->run(&teacher_, held_out({{0}, {1}, {2}}));
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_EQ(std::count(student_.log.begin(), student_.log.end(), "evaluate"), 1);
    EXPECT_TRUE((*run.outcome)->cancelled) << "it is to be evaluated and exported by the run that goes on";
    EXPECT_EQ((*run.outcome)->checkpoint, "step-5");
}

TEST_F(TrainingGraphTest, AResumeAtTheEndEvaluatesAndSaysWhatTheLastStepSaid) {
    options_.first_step = 5;
    options_.resumed.loss = 1.5;
    options_.resumed.tokens = 40;
    options_.resumed.seconds_elapsed = 2;
    options_.resumed.tokens_per_second = 20;
    options_.resumed_from = "step-00000005";
    const Outcome run = this->run(nullptr, held_out({{0}}));
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    const GraphOutcome& outcome = **run.outcome;
    EXPECT_FALSE(outcome.cancelled);
    EXPECT_EQ(outcome.last.step, 5U);
    EXPECT_EQ(outcome.last.total_steps, 5U);
    EXPECT_DOUBLE_EQ(outcome.last.loss, 1.5);
    EXPECT_EQ(outcome.last.tokens, 40U) << "of the run that did the last step";
    EXPECT_DOUBLE_EQ(outcome.last.seconds_elapsed, 2);
    EXPECT_DOUBLE_EQ(outcome.last.tokens_per_second, 20);
    const auto said = [](const WorkerEvent& event) {
        const auto* log = std::get_if<LogEvent>(&event);
        return log != nullptr && log->message == "all 5 steps were done before: nothing left to train";
    };
    EXPECT_EQ(std::ranges::count_if(run.events, said), 1);
    EXPECT_EQ(outcome.last.stages.size(), kStageNames.size() - 3) << "all but rollout, teacher and decode";
    EXPECT_DOUBLE_EQ(*outcome.eval_loss, 2.0);
    EXPECT_EQ(outcome.checkpoint, "step-00000005");
    EXPECT_NE(outcome.final_snapshot, nullptr);
    EXPECT_TRUE(run.checkpoints.empty()) << "it is on the disk";
    EXPECT_EQ(training_log(), std::vector<std::string>{});
}

TEST_F(TrainingGraphTest, ACheckpointHoldsTheProgressOfItsStep) {
    ProgressEvent held;
    student_.on_snapshot_state = [&held](const RunState& state) { held = state.last; };
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_EQ(held.step, 5U);
    EXPECT_DOUBLE_EQ(held.loss, 1.0);
    EXPECT_DOUBLE_EQ(held.grad_norm, 1.0);
}

}  // namespace
}  // namespace distilld
