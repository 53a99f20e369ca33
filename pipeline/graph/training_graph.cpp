#include "pipeline/graph/training_graph.hpp"

#include <boost/asio/this_coro.hpp>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "pipeline/graph/decode_stage.hpp"
#include "pipeline/graph/optimizer_stage.hpp"
#include "pipeline/graph/plan_stage.hpp"
#include "pipeline/graph/recorder_stage.hpp"
#include "pipeline/graph/rollout_stage.hpp"
#include "pipeline/graph/run_together.hpp"
#include "pipeline/graph/staging_stage.hpp"
#include "pipeline/graph/student_stage.hpp"
#include "pipeline/graph/teacher/teacher_stage.hpp"
#include "pipeline/graph/thrown_by.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

std::vector<GraphTeacher> teachers_of(const GraphOptions& options, const GraphHooks& hooks) {
    std::vector<GraphTeacher> teachers = options.teachers;
    if (teachers.empty()) {
        teachers.emplace_back();
    }
    for (GraphTeacher& teacher : teachers) {
        SchedulerOptions& scheduler = teacher.options.scheduler;
        teacher.options.on_event = hooks.on_event;
        scheduler.first = options.steps.first_of(options.first_step);
        scheduler.end = options.steps.first_of(options.total_steps);
        if (options.rollout) {  // the rollout stage tells how far it has come
            scheduler.end = scheduler.first;
            scheduler.growing = options.first_step < options.total_steps;
        }
        if (!options.training.parallel) {
            take_one_after_the_other(scheduler);
        }
    }
    return teachers;
}

class StagedTrainingGraph final : public TrainingGraph {
  public:
    StagedTrainingGraph(GraphExecutors executors, Student& student, std::shared_ptr<BatchSource> batches,
                        EvaluationSet eval, const GraphOptions& options, GraphHooks hooks, TraceWriter* trace)
        : io_(executors.io),
          plan_(io_, executors.staging, options.rollout ? nullptr : batches, trace),
          decode_(io_, executors.decoding(), executors.decode_threads, trace),
          teacher_(io_, plan_, decode_, teachers_of(options, hooks), trace),
          staging_(executors, student, teacher_, trace),
          optimizer_(executors.compute, student, options.training, options.total_steps, trace, options.now),
          rollout_(options.rollout ? std::make_unique<RolloutStage>(executors, student, optimizer_, std::move(batches),
                                                                    plan_, teacher_, options, hooks, trace)
                                   : nullptr),
          turn_(eval.turn),
          recorder_(executors, student, optimizer_, std::move(eval), options, recorder_hooks(std::move(hooks)), trace),
          student_(executors, student, staging_.output(), teacher_, optimizer_, recorder_, options, trace,
                   rollout_.get()) {
        if (turn_) {
            turn_->set_training(&teacher_);
        }
    }
    ~StagedTrainingGraph() override {
        if (turn_) {
            turn_->set_training(nullptr);
        }
    }
    StagedTrainingGraph(const StagedTrainingGraph&) = delete;
    StagedTrainingGraph& operator=(const StagedTrainingGraph&) = delete;

    asio::awaitable<Result<GraphOutcome>> run() override {
        // The tasks refer to us, so they are joined whatever happens.
        const bool throwing = co_await asio::this_coro::throw_if_cancelled();
        co_await asio::this_coro::throw_if_cancelled(false);
        recorder_.start();
        // Each stage ends when its predecessor has ended and its input is used up, or when the run is cancelled.
        auto stages = run_together(io_, run_rollouts(), teacher_.run(), staging_.run(), student_.run());
        std::exception_ptr thrown = co_await thrown_by(std::move(stages));
        if (rollout_) {
            const std::exception_ptr unpublished = co_await thrown_by(rollout_->join());
            thrown = thrown ? thrown : unpublished;
        }
        const bool whole = recorder_.whole();
        std::optional<Error> error = recorder_.failure();
        if (!error && !whole && !cancelled_) {
            error = rollout_ && rollout_->failure() ? rollout_->failure() : teacher_.failure();
        }
        if (thrown) {
            recorder_.cancel();  // a failing run does not wait for disk space
        } else {
            thrown = co_await thrown_by(recorder_.last_checkpoint());
        }
        if (!thrown && whole && !recorder_.failure()) {
            thrown = co_await thrown_by(recorder_.last_evaluation());
        }
        const std::exception_ptr unwritten = co_await thrown_by(recorder_.join());
        co_await asio::this_coro::throw_if_cancelled(throwing);
        rethrow_if(thrown);
        rethrow_if(unwritten);
        if (!error) {
            error = recorder_.failure();
        }
        if (error) {
            co_return *error;
        }
        GraphOutcome outcome = recorder_.take_outcome();
        outcome.cancelled = !whole || recorder_.cut_short();
        outcome.fill_seconds = student_.fill_seconds();
        outcome.padding_share = staging_.padding_share();
        outcome.last.stages = stage_times();  // including the last checkpoint and the last evaluation
        co_return outcome;
    }

    void cancel() override {
        cancelled_ = true;
        if (rollout_) {
            rollout_->stop();
        }
        teacher_.stop();
        staging_.output().close();
        student_.cancel();
        recorder_.cancel();
    }

    void forgo_last_checkpoint() override { recorder_.forgo_last_checkpoint(); }
    void request_checkpoint() override { recorder_.request_checkpoint(); }
    void set_max_concurrent(std::uint32_t limit) override {
        teacher_.set_ceiling(limit);
        recorder_.set_ceiling(limit);
    }

  private:
    asio::awaitable<void> run_rollouts() {
        if (rollout_) {
            co_await rollout_->run();
        }
    }

    RecorderHooks recorder_hooks(GraphHooks hooks) {
        RecorderHooks made;
        made.on_event = std::move(hooks.on_event);
        made.commit_checkpoint = std::move(hooks.commit_checkpoint);
        made.observe = [this] { return times(); };
        made.stages = [this] { return stage_times(); };
        made.lost = [this] { return teacher_.lost(); };
        made.usage = std::move(hooks.usage);
        made.sample = std::move(hooks.sample);
        made.program = std::move(hooks.program);
        made.on_failure = [this] { cancel(); };
        return made;
    }

    std::vector<StageTimes> stage_times() const {
        std::vector<StageTimes> stages{rollout_ ? rollout_->plan_times() : plan_.times()};
        if (rollout_) {
            stages.push_back(rollout_->times());
        }
        if (teacher_.asks()) {
            stages.push_back(teacher_.times());
            stages.push_back(decode_.times());
        }
        stages.push_back(staging_.times());
        stages.push_back(student_.times());
        stages.push_back(optimizer_.times());
        for (StageTimes& stage : recorder_.times()) {
            stages.push_back(std::move(stage));
        }
        return stages;
    }

    GraphTimes times() const {
        GraphTimes times;
        times.stages = stage_times();
        if (teacher_.asks()) {
            times.teacher_busy_seconds = teacher_.times().busy_seconds;
            times.fetch = teacher_.counters();
            times.fetch.decode_threads = decode_.max_at_once();
            times.request_durations = teacher_.durations();
        }
        if (rollout_) {
            times.rollout = rollout_->counters();
        }
        times.student_waited_seconds = student_.times().wait_input_seconds;
        times.fill_seconds = student_.fill_seconds();
        times.queues = teacher_.queues();
        const auto& staged = staging_.output();
        times.queues.push_back({std::string(stage_name(Stage::student)), staged.size(), staged.capacity()});
        return times;
    }

    asio::any_io_executor io_;
    PlanStage plan_;
    DecodeStage decode_;
    TeacherStage teacher_;
    StagingStage staging_;
    OptimizerStage optimizer_;
    std::unique_ptr<RolloutStage> rollout_;  // null: the batches are the dataset's
    std::shared_ptr<TeacherTurn> turn_;      // null: no evaluation asks the teacher
    RecorderStage recorder_;
    StudentStage student_;
    bool cancelled_ = false;
};

}  // namespace

std::unique_ptr<TrainingGraph> make_training_graph(GraphExecutors executors, Student& student,
                                                   std::shared_ptr<BatchSource> batches, EvaluationSet eval,
                                                   GraphOptions options, GraphHooks hooks, TraceWriter* trace) {
    options.steps = batches->steps();
    return std::make_unique<StagedTrainingGraph>(std::move(executors), student, std::move(batches), std::move(eval),
                                                 options, std::move(hooks), trace);
}

}  // namespace distilld
