#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "pipeline/async/condition.hpp"

namespace distilld {

/// One task of a TaskGroup, to be used on the group's executor. May be kept longer than task and group.
class TaskHandle {
  public:
    TaskHandle() = default;

    /// False when the group did not take the task in.
    explicit operator bool() const noexcept { return task_ != nullptr; }

    /// Terminal cancellation of this task alone. Does nothing when it has ended.
    void cancel();

  private:
    friend class TaskGroup;
    struct Task;
    explicit TaskHandle(std::shared_ptr<Task> task) : task_(std::move(task)) {}

    std::shared_ptr<Task> task_;
};

struct TaskGroupOptions {
    std::size_t max_tasks = std::numeric_limits<std::size_t>::max();  ///< at once
    /// Where it is set, each exception of a task goes here, the other tasks go on, and join() throws nothing. It may
    /// not throw.
    std::function<void(const std::exception_ptr&)> on_failure;
};

/// Owns coroutines that run at the same time on one strand, so that none outlives its owner unseen. The first exception
/// of a task closes the group and cancels the others, and is thrown by join(); see on_failure for another way.
/// operation_aborted counts as the end of a task that was cancelled, never as a failure. Everything here is called on
/// the group's executor.
class TaskGroup {
  public:
    explicit TaskGroup(boost::asio::any_io_executor executor, TaskGroupOptions options = {});
    TaskGroup(const TaskGroup&) = delete;
    TaskGroup& operator=(const TaskGroup&) = delete;
    /// Cancels what is left; join() first, for what the tasks refer to must outlive them.
    ~TaskGroup();

    /// Starts a task, which may run up to its first suspension in here but leaves the group later. The handle is empty
    /// when the group is closed or full: then the task never runs.
    [[nodiscard]] TaskHandle spawn(boost::asio::awaitable<void> task);

    /// No task is taken in from now on.
    void close();

    /// Terminal cancellation of all tasks, and close().
    void cancel();

    /// Closes and waits for all tasks, then throws the first exception that one of them ended with. When the caller is
    /// cancelled meanwhile, so are the tasks, and they are still waited for: with_deadline(group.join(), grace) gives
    /// them `grace` to end by themselves.
    boost::asio::awaitable<void> join();

    /// Tasks under way.
    [[nodiscard]] std::size_t size() const noexcept;
    [[nodiscard]] bool closed() const noexcept;

    /// Notified whenever a task has left the group and when the group is closed. The owner may notify it of other
    /// things that it waits for at the same place.
    [[nodiscard]] Condition& changed() noexcept;

  private:
    struct State;
    std::shared_ptr<State> state_;
};

}  // namespace distilld
