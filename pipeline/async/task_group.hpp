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

    /// False if the group refused the task.
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
    /// If set, it gets each exception of a task, the other tasks continue, and join() does not throw. Must not throw.
    std::function<void(const std::exception_ptr&)> on_failure;
};

/// Owns concurrent coroutines of one strand, so that none outlives its owner. The first exception of a task closes the
/// group, cancels the other tasks, and is thrown by join(); on_failure changes that. operation_aborted is the normal
/// end of a cancelled task, never a failure. Call everything on the group's executor.
class TaskGroup {
  public:
    explicit TaskGroup(boost::asio::any_io_executor executor, TaskGroupOptions options = {});
    TaskGroup(const TaskGroup&) = delete;
    TaskGroup& operator=(const TaskGroup&) = delete;
    /// Cancels the remaining tasks. Call join() first: objects that the tasks refer to must outlive them.
    ~TaskGroup();

    /// Starts a task, which may run up to its first suspension in here but leaves the group later. The handle is empty
    /// if the group is closed or full: then the task never runs.
    [[nodiscard]] TaskHandle spawn(boost::asio::awaitable<void> task);

    /// Refuses tasks from now on.
    void close();

    /// Terminal cancellation of all tasks, and close().
    void cancel();

    /// Closes, waits for all tasks, then throws the first exception of a task. Cancelling the caller cancels the tasks,
    /// which are still awaited: with_deadline(group.join(), grace) gives them `grace` to end by themselves.
    boost::asio::awaitable<void> join();

    /// Running tasks.
    [[nodiscard]] std::size_t size() const noexcept;
    [[nodiscard]] bool closed() const noexcept;

    /// Notified when a task has left the group and when the group is closed. The owner may also notify it for other
    /// events.
    [[nodiscard]] Condition& changed() noexcept;

  private:
    struct State;
    std::shared_ptr<State> state_;
};

}  // namespace distilld
