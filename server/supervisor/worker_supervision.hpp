#pragma once

#include <boost/asio/awaitable.hpp>
#include <memory>

#include "server/supervisor/worker_run.hpp"

namespace distilld {

/// Keeps the deadlines of a run until the child has ended and what it said has been read: for its hello, for its end
/// after its last word or after a cancellation (terminal, of this coroutine; it is then asked, terminated and killed in
/// turn), and for what its own children keep open after its end.
boost::asio::awaitable<void> supervise(std::shared_ptr<WorkerRun> run);

}  // namespace distilld
