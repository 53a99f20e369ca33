#include "pipeline/graph/program_evaluations.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/post.hpp>
#include <latch>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "base/scope_exit.hpp"
#include "pipeline/async/condition.hpp"
#include "tests/unit/pipeline/graph/graph_fixture.hpp"

namespace distilld {
namespace {

namespace asio = boost::asio;
using test::Outcome;
using test::TrainingGraphTest;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Runs of five steps whose eval.command says its step.
class ProgramEvaluationsTest : public TrainingGraphTest {
  protected:
    ProgramEvaluationsTest() {
        options_.program_every_steps = 2;
        program_.write = [this](const StudentSnapshot&) -> Result<void> {
            log("write");
            return {};
        };
        program_.run = [this](std::uint64_t step) { return run_program(step); };
    }

    asio::awaitable<void> run_program(std::uint64_t step) {
        log("begin " + std::to_string(step));
        if (hangs_) {
            Condition never(io_->get_executor());
            asio::post(*io_, [this] { on_hang_(); });
            released_ = &never;
            const ScopeExit ended([this] {
                released_ = nullptr;
                log("end");
            });
            co_await never.wait();
        }
        said_.push_back(step);
        end_first();
    }
    /// Steps here are faster than a disk: the fourth waits until nothing is left to do about the second.
    void keep_pace() {
        student_.on_train = [this](std::uint64_t n) {
            if (n == 9) {
                first_.wait();
            }
        };
    }
    /// What follows on the I/O thread comes before anything that the student then asks of it.
    void end_first() {
        if (!first_.try_wait()) {
            first_.count_down();
        }
    }
    /// After everything that the graph does in so many turns of its thread.
    void release_after(int turns) {
        asio::post(*io_, [this, turns] {
            if (turns > 0) {
                release_after(turns - 1);
            } else if (released_ != nullptr) {
                released_->notify();
            }
        });
    }
    /// Disk or I/O thread: of one run one after the other.
    void log(const std::string& text) {
        const std::lock_guard lock(mutex_);
        log_.push_back(text);
    }
    static std::vector<std::string> warnings(const Outcome& run) {
        std::vector<std::string> texts;
        for (const WorkerEvent& event : run.events) {
            if (const auto* log = std::get_if<LogEvent>(&event); log != nullptr && log->level == "warn") {
                texts.push_back(log->message);
            }
        }
        return texts;
    }

    bool hangs_ = false;
    std::function<void()> on_hang_ = [] {};
    Condition* released_ = nullptr;
    std::latch first_{1};
    std::mutex mutex_;
    std::vector<std::string> log_;
    std::vector<std::uint64_t> said_;
};

TEST_F(ProgramEvaluationsTest, RunOnACopyOfTheirStep) {
    keep_pace();
    std::vector<std::uint64_t> copied;
    student_.on_snapshot_state = [&copied](const RunState& state) { copied.push_back(state.step); };
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_THAT(log_, ElementsAre("write", "begin 2", "write", "begin 4"));
    EXPECT_THAT(said_, ElementsAre(2, 4));
    EXPECT_THAT(copied, ElementsAre(2, 4, 5)) << "and the last checkpoint's";
    EXPECT_THAT(run.checkpoints, ElementsAre(5));
}

TEST_F(ProgramEvaluationsTest, ShareTheCopyOfACheckpoint) {
    options_.checkpoint.every_steps = 2;
    keep_pace();
    std::vector<std::uint64_t> copied;
    student_.on_snapshot_state = [&copied](const RunState& state) { copied.push_back(state.step); };
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_THAT(said_, ElementsAre(2, 4));
    EXPECT_THAT(copied, ElementsAre(2, 4, 5));
    EXPECT_THAT(run.checkpoints, ElementsAre(2, 4, 5));
}

TEST_F(ProgramEvaluationsTest, TheStudentTrainsOnBesideASlowOneAndTheRunWaitsForItsEnd) {
    hangs_ = true;
    options_.program_every_steps = 1;
    on_event_ = [this](const WorkerEvent& event) {
        if (std::holds_alternative<EvaluationEvent>(event)) {  // the last that the run itself has to do
            log("evaluation");
            release_after(1000);
        }
    };
    on_ended_ = [this] { log("ended"); };
    const Outcome run = this->run(&teacher_, held_out({{0}}));
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_FALSE((*run.outcome)->cancelled);
    EXPECT_THAT(log_, ElementsAre("write", "begin 1", "evaluation", "end", "ended"));
    EXPECT_THAT(said_, ElementsAre(1));
    EXPECT_THAT(warnings(run), ElementsAre(HasSubstr("left out from step 2 on"))) << "one for all";
}

TEST_F(ProgramEvaluationsTest, ACancelEndsTheProgram) {
    hangs_ = true;
    on_hang_ = [this] { graph_->cancel(); };
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_EQ(std::ranges::count(log_, "end"), 1);
    EXPECT_THAT(said_, IsEmpty());
}

TEST_F(ProgramEvaluationsTest, AnExportThatFailsIsAProblemOfItsStepAlone) {
    keep_pace();
    on_event_ = [this](const WorkerEvent& event) {
        if (std::holds_alternative<FiguresEvent>(event)) {
            end_first();
        }
    };
    std::atomic<int> writes = 0;
    program_.write = [&writes](const StudentSnapshot&) -> Result<void> {
        return writes++ == 0 ? Result<void>(Error{ErrorKind::disk_full, "out: no space"}) : Result<void>();
    };
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_THAT(said_, ElementsAre(4));
    std::vector<std::string> problems;
    for (const WorkerEvent& event : run.events) {
        if (const auto* figures = std::get_if<FiguresEvent>(&event)) {
            problems.push_back(std::to_string(figures->step) + ": " + figures->problem);
        }
    }
    EXPECT_THAT(problems, ElementsAre("2: the student was not exported: out: no space"));
}

TEST_F(ProgramEvaluationsTest, WithoutAnIntervalNoneRuns) {
    options_.program_every_steps = 0;
    const Outcome run = this->run(&teacher_);
    ASSERT_TRUE(run.outcome && run.outcome->has_value()) << run.thrown;
    EXPECT_THAT(log_, IsEmpty());
}

}  // namespace
}  // namespace distilld
