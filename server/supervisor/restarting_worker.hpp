#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <functional>
#include <memory>

#include "server/supervisor/restart_policy.hpp"
#include "server/supervisor/worker_process.hpp"

namespace distilld {

/// A worker that is started again from its newest checkpoint when it dies, within the limits, and with smaller
/// micro-batches when it runs out of memory. Each restart is told as a
/// LogEvent (warn) in place of the death; the death after which there is none is the FailedEvent. Cancelled between two
/// workers it yields the CancelledEvent of the newest checkpoint. A program that cannot be started is an error at once,
/// as without it. One executor.
std::unique_ptr<WorkerProcess> make_restarting_worker(boost::asio::any_io_executor executor,
                                                      std::function<std::unique_ptr<WorkerProcess>()> make_worker,
                                                      RestartLimits limits);

}  // namespace distilld
