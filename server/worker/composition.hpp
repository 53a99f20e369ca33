#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/worker_events.hpp"
#include "pipeline/graph/training_graph.hpp"
#include "server/worker/orders.hpp"
#include "server/worker/preparation.hpp"

namespace distilld {

/// The threads of one training job: `io` runs the coroutines on the thread that calls its run(); compute, staging,
/// disk and decode have one thread each.
class WorkerThreads {
  public:
    [[nodiscard]] GraphExecutors executors() {
        return {io.get_executor(), compute_.get_executor(), staging_.get_executor(), disk_.get_executor(),
                decode_.get_executor()};
    }
    /// Waits for what the threads have been given; they take nothing more. Not before the coroutines that use them end.
    void join() {
        compute_.join();
        staging_.join();
        disk_.join();
        decode_.join();
    }

    boost::asio::io_context io{1};

  private:
    boost::asio::thread_pool compute_{1};
    boost::asio::thread_pool staging_{1};
    boost::asio::thread_pool disk_{1};
    boost::asio::thread_pool decode_{1};
};

/// Says that the run has started, makes its stage graph, trains, and exports the student. Returns the last event of the
/// run: finished or, when `control` was cancelled, cancelled. `trace_file`: Chrome trace to write; empty = none. `run`
/// and `control` must outlive it. Executor of `executors.io`.
boost::asio::awaitable<Result<WorkerEvent>> train_and_export(PreparedRun& run, GraphExecutors executors,
                                                             RunControl& control, EmitEvent emit,
                                                             std::string trace_file);

}  // namespace distilld
