#pragma once

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <cstdint>
#include <optional>

#include "pipeline/graph/running_graph.hpp"
#include "server/protocol/worker_channel.hpp"

namespace distilld {

/// What a worker whose service is gone gets to save its last step; then it ends, whatever it is at.
inline constexpr std::chrono::seconds kOrphanPatience{120};

/// What orders and signals act upon: a run, before, while and after its graph works. One executor, but for cancelled().
class RunControl {
  public:
    /// The run is to stop: what waits on cancel_slot() is cancelled, the graph ends with a checkpoint.
    void cancel();
    /// The graph is to end without its last checkpoint, whenever it is cancelled.
    void forgo_last_checkpoint();
    /// Any thread.
    [[nodiscard]] bool cancelled() const noexcept { return cancelled_; }
    /// For one wait at a time that comes before or after the graph.
    [[nodiscard]] boost::asio::cancellation_slot cancel_slot() { return cancel_signal_.slot(); }

    /// A checkpoint at the next step boundary; before the graph works, after its first step.
    void request_checkpoint();

    /// Ceiling of the requests in flight. A graph that is attached later gets it then.
    void set_max_concurrent(std::uint32_t limit);

    /// From now on the orders reach `graph`, until detach(); one that was cancelled meanwhile is cancelled at once.
    void attach(RunningGraph& graph);
    void detach() noexcept { graph_ = nullptr; }

  private:
    std::atomic<bool> cancelled_ = false;
    bool forgoes_last_checkpoint_ = false;
    bool checkpoint_requested_ = false;  ///< before there was a graph
    std::optional<std::uint32_t> max_concurrent_;
    RunningGraph* graph_ = nullptr;
    boost::asio::cancellation_signal cancel_signal_;
};

/// Reads orders and has `control` follow them, until the parent is gone or the channel is of no use any more: then the
/// run is cancelled, since nobody waits for it. A line that is no order is logged and passed over. Ends by itself or by
/// cancellation.
boost::asio::awaitable<void> follow_orders(WorkerChannel& channel, RunControl& control);

/// Each signal cancels the run. Ends by cancellation.
boost::asio::awaitable<void> follow_signals(boost::asio::signal_set& signals, RunControl& control);

}  // namespace distilld
