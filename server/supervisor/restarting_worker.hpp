#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <functional>
#include <memory>

#include "server/supervisor/restart_policy.hpp"
#include "server/supervisor/worker_process.hpp"

namespace distilld {

/// A worker that is restarted from its newest checkpoint when it dies, within the limits, and with smaller
/// micro-batches when it runs out of memory. A LogEvent (warn) reports each restart instead of the death; the final
/// death is the FailedEvent. If it is cancelled between two workers, it yields the CancelledEvent of the newest
/// checkpoint. A program that cannot be started is an error at once, as without restarts. One executor.
std::unique_ptr<WorkerProcess> make_restarting_worker(boost::asio::any_io_executor executor,
                                                      std::function<std::unique_ptr<WorkerProcess>()> make_worker,
                                                      RestartLimits limits);

}  // namespace distilld
