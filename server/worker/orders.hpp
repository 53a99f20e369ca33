#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "pipeline/graph/running_graph.hpp"
#include "server/protocol/worker_channel.hpp"

namespace distilld {

/// Time that a worker without its service gets to save its last step; then it ends in any case.
inline constexpr std::chrono::seconds kOrphanTimeout{120};

/// What orders and signals act on: a run before, during and after its graph. One executor, except cancelled().
class RunControl {
  public:
    /// Stops the run: cancels waits on cancel_slot(), and ends the graph with a checkpoint. A rank that asks rank 0 for
    /// that goes on until rank 0 has stopped.
    void cancel();
    /// Stops this process's part of the run, as cancel() does if there is one rank.
    void end();
    /// This run is one rank of several. `ask` asks rank 0 to stop the run; empty: this is rank 0.
    void join_ranks(std::function<void()> ask);
    /// Rank 0 is not asked any more.
    void leave_ranks() { ask_ = {}; }
    /// Makes the graph end without its last checkpoint, whenever it is cancelled.
    void forgo_last_checkpoint();
    /// Any thread.
    [[nodiscard]] bool cancelled() const noexcept { return cancelled_; }
    /// For one wait at a time, before or after the graph.
    [[nodiscard]] boost::asio::cancellation_slot cancel_slot() { return cancel_signal_.slot(); }

    /// Requests a checkpoint at the next step boundary; before the graph, after its first step.
    void request_checkpoint();

    /// Upper bound of the requests in flight, of all ranks. A graph attached later gets it then.
    void set_max_concurrent(std::uint32_t limit);

    /// Orders now reach `graph`, until detach(). If the run was cancelled before, cancels the graph at once.
    void attach(RunningGraph& graph);
    void detach() noexcept { graph_ = nullptr; }

  private:
    std::atomic<bool> cancelled_ = false;
    bool forgoes_last_checkpoint_ = false;
    bool checkpoint_requested_ = false;  ///< before the graph existed
    std::optional<std::uint32_t> max_concurrent_;
    std::function<void()> ask_;
    RunningGraph* graph_ = nullptr;
    boost::asio::cancellation_signal cancel_signal_;
};

/// Reads orders and applies them to `control`. When the parent is gone or the channel has failed, cancels the run,
/// because nobody waits for it. Logs and skips a line that is not an order. Ends by itself or by cancellation.
boost::asio::awaitable<void> follow_orders(WorkerChannel& channel, RunControl& control);

/// Each signal cancels the run. Ends by cancellation.
boost::asio::awaitable<void> follow_signals(boost::asio::signal_set& signals, RunControl& control);

}  // namespace distilld
