#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>

#include "server/supervisor/worker_run.hpp"

namespace distilld {

/// Enforces the deadlines of a run until the child has ended and its output has been read: for its hello; for its exit
/// after its last event or a cancellation (terminal, of this coroutine: the child is asked, sent SIGTERM, then killed);
/// and for processes that still hold its pipes after its end.
boost::asio::awaitable<void> supervise(std::shared_ptr<WorkerRun> run);

}  // namespace distilld
