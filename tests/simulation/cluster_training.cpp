#include "tests/simulation/cluster_training.hpp"

#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <csignal>
#include <variant>

namespace distilld::test {
namespace {

namespace asio = boost::asio;

constexpr std::uint32_t kStepsOfACheckpoint = 4;

class SimulatedWorker final : public WorkerProcess {
  public:
    explicit SimulatedWorker(std::shared_ptr<Training> training) : training_(std::move(training)) {}

    asio::awaitable<Result<WorkerExit>> run(WorkerStart start, EventHandler on_event) override {
        co_await asio::this_coro::throw_if_cancelled(false);
        const auto training = training_;
        training->begin(start, std::move(on_event));
        while (!training->ended()) {
            try {
                co_await training->changed().wait();
            } catch (const boost::system::system_error&) {
                training->order(CancelCommand{});
                training->kill_in(60'000);
            }
        }
        co_return WorkerExit{training->exit_code(), {}};
    }
    void send(const WorkerCommand& command) override { training_->order(command); }
    void kill() override { training_->die("internal", "the worker was killed on request", 128 + SIGKILL); }

  private:
    std::shared_ptr<Training> training_;
};

}  // namespace

std::unique_ptr<WorkerProcess> make_simulated_worker(std::shared_ptr<Training> training) {
    return std::make_unique<SimulatedWorker>(std::move(training));
}

Training::Training(Stage& stage, JobFolders& folders, Said& said, std::weak_ptr<Process> relay, std::uint32_t node)
    : stage_(stage),
      folders_(folders),
      said_(said),
      relay_(std::move(relay)),
      changed_(relay_.lock()->io().get_executor()),
      holder_(std::make_shared<FolderHolder>(FolderHolder{relay_, node})) {}

void Training::begin(const WorkerStart& start, WorkerProcess::EventHandler on_event) {
    job_ = start.job_id;
    attempt_ = start.attempt;
    on_event_ = std::move(on_event);
    begun_ = true;
    later(500 + static_cast<Millis>(stage_.draw(4000)), &Training::take_folder);
}

void Training::later(Millis delay, void (Training::*work)()) {
    if (const auto relay = relay_.lock()) {
        relay->later(delay, [weak = weak_from_this(), work, delay] {
            const auto self = weak.lock();
            if (self && !self->ended_ && self->holder_->stopped) {
                self->later(delay + 500, work);
            } else if (self && !self->ended_) {
                (self.get()->*work)();
            }
        });
    }
}

void Training::take_folder() {
    if (cancelled_) {
        end_with(CancelledEvent{}, 0);
        return;
    }
    asked_ = asked_ == 0 ? stage_.now() : asked_;
    auto& folder = folders_.at(job_);
    const auto took = folder.take(attempt_, holder_, asked_);
    if (took == JobFolder::Take::waits) {
        later(1000, &Training::take_folder);
        return;
    }
    if (took == JobFolder::Take::refused) {
        end_with(FailedEvent{"replaced", "a later attempt has the folder"}, 1);
        return;
    }
    if (const auto& newest = folder.newest()) {
        step_ = saved_ = newest->step;
        weights_ = newest->weights;
    }
    StartedEvent started;
    started.total_steps = stage_.options().steps;
    started.first_step = step_;
    started.batch_size = 2;
    started.micro_batches = 1;
    started.dtype = "fp32";
    say(started);
    later(static_cast<Millis>(stage_.draw(2000)), &Training::train);
}

void Training::train() {
    if (cancelled_) {
        end_early();
        return;
    }
    if (step_ < stage_.options().steps) {
        ++step_;
        weights_ = next_weights(weights_, step_);
        ProgressEvent progress;
        progress.step = step_;
        progress.total_steps = stage_.options().steps;
        say(progress);
        auto& said = said_[{job_, attempt_}];
        const std::string line = "attempt " + std::to_string(attempt_) + " line " + std::to_string(said.size());
        said.push_back(line);
        say(LogEvent{"info", line});
    }
    const bool last = step_ == stage_.options().steps;
    if (last || std::exchange(checkpoint_due_, false) || step_ % kStepsOfACheckpoint == 0) {
        if (!commit(last)) {
            return;
        }
    }
    if (last) {
        FinishedEvent finished;
        finished.last.step = step_;
        finished.last.total_steps = step_;
        finished.weights_sha256 = std::to_string(weights_);
        end_with(finished, 0);
        return;
    }
    later(100 + static_cast<Millis>(stage_.draw(stage_.options().step_millis)), &Training::train);
}

void Training::end_early() {
    CancelledEvent cancelled;
    if (*cancelled_ && step_ > saved_ && !commit(false)) {
        return;
    }
    cancelled.step = step_;
    cancelled.checkpoint = saved_ > 0 ? "checkpoints/" + std::to_string(saved_) : "";
    end_with(cancelled, 0);
}

bool Training::commit(bool exported) {
    if (!folders_.at(job_).commit(holder_, attempt_, step_, weights_, exported)) {
        end_with(FailedEvent{"replaced", "another attempt has the folder"}, 1);
        return false;
    }
    saved_ = step_;
    say(CheckpointEvent{step_, "checkpoints/" + std::to_string(step_), 0.1, 10});
    return true;
}

void Training::order(const WorkerCommand& command) {
    if (const auto* cancel = std::get_if<CancelCommand>(&command)) {
        cancelled_ = cancel->checkpoint && cancelled_.value_or(true);
        if (!begun_) {
            return;
        }
        later(50, asked_ == 0 ? &Training::take_folder : &Training::train);
    } else if (std::holds_alternative<CheckpointCommand>(command)) {
        checkpoint_due_ = true;
    }
}

void Training::kill_in(Millis delay) {
    if (const auto relay = relay_.lock()) {
        relay->later(delay, [weak = weak_from_this()] {
            if (const auto self = weak.lock()) {
                self->die(kWorkerKilled, "the worker did not stop in time", 128 + SIGKILL);
            }
        });
    }
}

void Training::stop(Millis length) {
    if (ended_) {
        return;
    }
    stage_.tell(job_ + ": the worker of attempt " + std::to_string(attempt_) + " is stopped for " +
                std::to_string(length) + " ms");
    const auto holder = holder_;
    holder->stopped = true;
    if (const auto relay = relay_.lock()) {
        relay->later(length, [weak = std::weak_ptr(holder)] {
            if (const auto found = weak.lock()) {
                found->stopped = false;
            }
        });
    }
}

void Training::die(const char* kind, const std::string& why, int exit_code) {
    if (begun_ && !ended_) {
        end_with(FailedEvent{kind, why}, exit_code);
    }
}

void Training::say(const WorkerEvent& event) {
    on_event_(event);
}

void Training::end_with(const WorkerEvent& event, int exit_code) {
    ended_ = true;
    exit_code_ = exit_code;
    holder_.reset();
    say(event);
    changed_.notify();
}

}  // namespace distilld::test
