#include "pipeline/async/task_group.hpp"

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <list>
#include <vector>

#include "pipeline/async/abort.hpp"

namespace distilld {
namespace asio = boost::asio;

struct TaskHandle::Task {
    asio::cancellation_signal cancellation;
    bool cancelled = false;
    bool started = false;
    bool ended = false;
};

void TaskHandle::cancel() {
    const auto task = task_;
    if (!task || task->ended) {
        return;
    }
    task->cancelled = true;
    // A task that waits to be started gets no signal: asio's co_spawn would throw out of the executor's run().
    if (task->started) {
        task->cancellation.emit(asio::cancellation_type::terminal);
    }
}

struct TaskGroup::State {
    using Tasks = std::list<TaskHandle>;

    /// Part of a task's completion handler: keeps the signal alive while the task may listen to it, and sees the end of
    /// tasks that never complete because their context is destroyed.
    class EndMark {
      public:
        explicit EndMark(std::shared_ptr<TaskHandle::Task> task) : task_(std::move(task)) {}
        EndMark(EndMark&&) noexcept = default;
        EndMark& operator=(EndMark&&) = delete;
        EndMark(const EndMark&) = delete;
        EndMark& operator=(const EndMark&) = delete;
        ~EndMark() {
            if (task_) {
                task_->ended = true;
            }
        }

      private:
        std::shared_ptr<TaskHandle::Task> task_;
    };

    State(asio::any_io_executor the_executor, TaskGroupOptions the_options)
        : executor(std::move(the_executor)), options(std::move(the_options)), changed(executor) {}

    static asio::awaitable<void> run(std::shared_ptr<TaskHandle::Task> entry, asio::awaitable<void> task) {
        entry->started = true;
        std::exception_ptr failure;
        if (!entry->cancelled) {
            try {
                co_await std::move(task);
            } catch (...) {
                failure = std::current_exception();
            }
        }
        // co_spawn awaits once more after a task that never waited. If that task was cancelled by itself, this would
        // throw out of the executor's run().
        co_await asio::this_coro::throw_if_cancelled(false);
        if (failure) {
            std::rethrow_exception(failure);
        }
    }

    void cancel_all() {
        closed = true;
        cancelled = true;
        // A cancelled task may change the list.
        std::vector<TaskHandle> running(tasks.begin(), tasks.end());
        for (auto& task : running) {
            task.cancel();
        }
        changed.notify();
    }

    void finished(Tasks::iterator position, const std::exception_ptr& failure) {
        position->task_->ended = true;
        tasks.erase(position);
        if (failure && !is_abort(failure)) {
            report(failure);
        }
        changed.notify();
    }

    void report(const std::exception_ptr& failure) {
        if (options.on_failure) {
            options.on_failure(failure);
            return;
        }
        if (!first_failure) {
            first_failure = failure;
        }
        if (!cancelled) {
            cancel_all();
        }
    }

    asio::any_io_executor executor;
    TaskGroupOptions options;
    Condition changed;
    bool closed = false;
    bool cancelled = false;
    Tasks tasks;
    std::exception_ptr first_failure;
};

TaskGroup::TaskGroup(asio::any_io_executor executor, TaskGroupOptions options)
    : state_(std::make_shared<State>(std::move(executor), std::move(options))) {}

TaskGroup::~TaskGroup() {
    if (!state_->tasks.empty()) {
        state_->cancel_all();
    }
}

TaskHandle TaskGroup::spawn(asio::awaitable<void> task) {
    if (state_->closed || state_->tasks.size() >= state_->options.max_tasks) {
        return {};
    }
    const TaskHandle handle(std::make_shared<TaskHandle::Task>());
    const auto position = state_->tasks.insert(state_->tasks.end(), handle);
    auto finished = [state = state_, position, mark = State::EndMark(handle.task_)](const std::exception_ptr& failure) {
        state->finished(position, failure);
    };
    asio::co_spawn(state_->executor, State::run(handle.task_, std::move(task)),
                   asio::bind_cancellation_slot(handle.task_->cancellation.slot(), std::move(finished)));
    return handle;
}

void TaskGroup::close() {
    state_->closed = true;
    state_->changed.notify();
}

void TaskGroup::cancel() {
    state_->cancel_all();
}

asio::awaitable<void> TaskGroup::join() {
    const auto state = state_;
    state->closed = true;
    // A cancelled caller must still wait for its tasks: each co_await would throw at once otherwise.
    const bool throwing = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    while (!state->tasks.empty()) {
        const auto caller = co_await asio::this_coro::cancellation_state;
        if (caller.cancelled() != asio::cancellation_type::none && !state->cancelled) {
            state->cancel_all();
        }
        try {
            co_await state->changed.wait();
        } catch (const boost::system::system_error& error) {
            if (!is_abort(error.code())) {
                throw;
            }
            // Cancelled: handled at the start of the loop.
        }
    }
    co_await asio::this_coro::throw_if_cancelled(throwing);
    if (state->first_failure) {
        std::rethrow_exception(std::exchange(state->first_failure, nullptr));
    }
}

std::size_t TaskGroup::size() const noexcept {
    return state_->tasks.size();
}

bool TaskGroup::closed() const noexcept {
    return state_->closed;
}

Condition& TaskGroup::changed() noexcept {
    return state_->changed;
}

}  // namespace distilld
