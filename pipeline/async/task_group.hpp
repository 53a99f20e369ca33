#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <limits>
#include <memory>

namespace distilld {

/// Owns coroutines that run at the same time on one strand, so that none outlives its owner unseen. The first exception
/// of a task closes the group and cancels the others, and is thrown by join(). operation_aborted counts as the end of
/// a task that was cancelled, not as a failure. Everything here is called on the group's executor.
class TaskGroup {
  public:
    /// At most `limit` tasks at once.
    explicit TaskGroup(boost::asio::any_io_executor executor,
                       std::size_t limit = std::numeric_limits<std::size_t>::max());
    TaskGroup(const TaskGroup&) = delete;
    TaskGroup& operator=(const TaskGroup&) = delete;
    /// Cancels what is left; join() first, for what the tasks refer to must outlive them.
    ~TaskGroup();

    /// Starts a task. False when the group is closed or full: then the task never runs.
    [[nodiscard]] bool spawn(boost::asio::awaitable<void> task);

    /// Waits until another task fits. False when the group was closed meanwhile.
    boost::asio::awaitable<bool> wait_for_room();

    /// No task is taken in from now on.
    void close();

    /// Terminal cancellation of all tasks, and close().
    void cancel();

    /// Closes and waits for all tasks, then throws the first exception that one of them ended with. When the caller is
    /// cancelled meanwhile, so are the tasks, and they are still waited for.
    boost::asio::awaitable<void> join();

    [[nodiscard]] std::size_t size() const noexcept;
    [[nodiscard]] bool closed() const noexcept;

  private:
    struct State;
    std::shared_ptr<State> state_;
};

}  // namespace distilld
