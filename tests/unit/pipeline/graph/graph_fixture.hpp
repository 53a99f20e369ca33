#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/system/system_error.hpp>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "pipeline/async/abort.hpp"
#include "pipeline/graph/training_graph.hpp"
#include "tests/support/fake_student.hpp"
#include "tests/support/fake_teacher.hpp"

namespace distilld::test {

/// Rows of four positions, all with targets.
class SmallDataset final : public Dataset {
  public:
    std::uint64_t row_count() const override { return 10; }
    std::uint64_t token_count() const override { return 40; }
    const std::string& hash() const override { return hash_; }
    TokenBatch batch(std::uint64_t number, const std::vector<std::uint64_t>& rows) const override {
        if (on_batch) {
            on_batch(number);
        }
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

    std::function<void(std::uint64_t)> on_batch;  ///< on the staging thread

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
        asking_.scheduler.limit.ceiling = 4;
        asking_.scheduler.retry.base = std::chrono::milliseconds(1);
        asking_.deadline = std::chrono::seconds(5);
    }

    /// Micro-batches of these rows of the dataset are held out.
    EvaluationSet held_out(const std::vector<std::vector<std::uint64_t>>& rows) const {
        EvaluationSet set;
        BatchPlan plan = BatchPlan::once({}, 10);
        for (const auto& of_batch : rows) {
            set.count = plan.append(of_batch);
        }
        set.batches = std::make_shared<BatchSource>(dataset_, std::move(plan), 1);
        return set;
    }

    Outcome run(TeacherSource* source, EvaluationSet eval = {}) {
        boost::asio::io_context io(1);
        boost::asio::thread_pool compute(1);
        boost::asio::thread_pool staging(1);
        boost::asio::thread_pool disk(1);
        boost::asio::thread_pool decode(1);
        std::deque<boost::asio::thread_pool> replicas;
        Outcome result;
        GraphHooks hooks;
        hooks.on_event = [this, &result](const WorkerEvent& event) {
            result.events.push_back(event);
            if (on_event_) {
                on_event_(event);
            }
        };
        hooks.sample = sample_;
        hooks.program = program_;
        hooks.commit_checkpoint = [&](std::uint64_t step, const StudentSnapshot&) -> Result<std::string> {
            if (on_commit_) {
                on_commit_(step);
            }
            if (commit_error_ && (failing_commits_ < 0 || failing_commits_-- > 0)) {
                return *commit_error_;
            }
            result.checkpoints.push_back(step);
            return "step-" + std::to_string(step);
        };
        auto batches = std::make_shared<BatchSource>(dataset_, BatchPlan(10, options_.training.batch_size, 1),
                                                     options_.training.micro_batches);
        GraphExecutors executors{io.get_executor(), compute.get_executor(), staging.get_executor(), disk.get_executor(),
                                 decode.get_executor()};
        for (std::size_t i = 0; i < replicas_; ++i) {
            executors.replicas.emplace_back(replicas.emplace_back(1).get_executor());
        }
        options_.teachers.clear();
        if (source != nullptr) {
            options_.teachers.push_back({"", source, asking_});
        }
        auto graph = make_training_graph(executors, student(), batches, std::move(eval), options_, hooks, nullptr);
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
        for (boost::asio::thread_pool& replica : replicas) {
            replica.join();
        }
        return result;
    }

    virtual Student& student() { return student_; }

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

    std::shared_ptr<SmallDataset> dataset_ = std::make_shared<SmallDataset>();
    FakeStudent student_;
    FakeTeacher teacher_;
    GraphOptions options_;
    TeacherStageOptions asking_;  // of the one teacher
    std::size_t replicas_ = 0;
    std::optional<Error> commit_error_;
    int failing_commits_ = -1;                                                 // of them; below 0 = all
    std::function<void(std::uint64_t)> on_commit_;                             // on the disk thread
    std::function<std::vector<SampledText>(Student&, std::uint64_t)> sample_;  // GraphHooks::sample
    EvalProgramHooks program_;
    std::function<void(const WorkerEvent&)> on_event_;
    std::function<void()> on_ended_;
    boost::asio::cancellation_signal stop_;
    TrainingGraph* graph_ = nullptr;
    boost::asio::io_context* io_ = nullptr;
};

}  // namespace distilld::test
