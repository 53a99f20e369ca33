#include "pipeline/async/task_group.hpp"

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <exception>
#include <list>
#include <utility>
#include <vector>

#include "pipeline/async/condition.hpp"

namespace distilld {
namespace asio = boost::asio;

namespace {

struct Task {
    asio::cancellation_signal cancellation;
};

bool is_abort(const std::exception_ptr& failure) {
    try {
        std::rethrow_exception(failure);
    } catch (const boost::system::system_error& error) {
        return error.code() == asio::error::operation_aborted;
    } catch (...) {
        return false;
    }
}

}  // namespace

struct TaskGroup::State {
    State(asio::any_io_executor the_executor, std::size_t the_limit)
        : executor(std::move(the_executor)), limit(the_limit), changed(executor) {}

    void cancel_all() {
        closed = true;
        cancelled = true;
        // A task may end while its signal is emitted, and then leaves the list.
        const std::vector<std::shared_ptr<Task>> running(tasks.begin(), tasks.end());
        for (const auto& task : running) {
            task->cancellation.emit(asio::cancellation_type::terminal);
        }
        changed.notify_all();
    }

    void finished(std::list<std::shared_ptr<Task>>::iterator position, const std::exception_ptr& failure) {
        tasks.erase(position);
        if (failure && !is_abort(failure)) {
            if (!first_failure) {
                first_failure = failure;
            }
            if (!cancelled) {
                cancel_all();
            }
        }
        changed.notify_all();
    }

    asio::any_io_executor executor;
    std::size_t limit;
    Condition changed;
    bool closed = false;
    bool cancelled = false;
    std::list<std::shared_ptr<Task>> tasks;
    std::exception_ptr first_failure;
};

TaskGroup::TaskGroup(asio::any_io_executor executor, std::size_t limit)
    : state_(std::make_shared<State>(std::move(executor), limit)) {}

TaskGroup::~TaskGroup() {
    if (!state_->tasks.empty()) {
        state_->cancel_all();
    }
}

bool TaskGroup::spawn(asio::awaitable<void> task) {
    if (state_->closed || state_->tasks.size() >= state_->limit) {
        return false;
    }
    const auto entry = std::make_shared<Task>();
    const auto position = state_->tasks.insert(state_->tasks.end(), entry);
    asio::co_spawn(state_->executor, std::move(task),
                   asio::bind_cancellation_slot(entry->cancellation.slot(),
                                                [state = state_, entry, position](const std::exception_ptr& failure) {
                                                    state->finished(position, failure);
                                                }));
    return true;
}

asio::awaitable<bool> TaskGroup::wait_for_room() {
    const auto state = state_;
    while (!state->closed && state->tasks.size() >= state->limit) {
        co_await state->changed.wait();
    }
    co_return !state->closed;
}

void TaskGroup::close() {
    state_->closed = true;
    state_->changed.notify_all();
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
        const auto before = co_await asio::this_coro::cancellation_state;
        if (before.cancelled() != asio::cancellation_type::none && !state->cancelled) {
            state->cancel_all();
            continue;
        }
        bool aborted = false;
        try {
            co_await state->changed.wait();
        } catch (const boost::system::system_error&) {
            aborted = true;
        }
        if (aborted && !state->cancelled) {
            state->cancel_all();
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

}  // namespace distilld
