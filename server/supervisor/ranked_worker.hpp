#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <functional>
#include <memory>

#include "server/supervisor/worker_process.hpp"

namespace distilld {

/// One worker for each of the spec's training.ranks, as one: its events are those of rank 0, and so are commands but
/// for a limit, which all get. If a rank ends without the others, they end too, within seconds, and the last event is
/// the FailedEvent of the first of them, which names the rank. A start that is itself a rank of another launcher, or a
/// spec with one rank, is one worker. One executor.
std::unique_ptr<WorkerProcess> make_ranked_worker(boost::asio::any_io_executor executor,
                                                  std::function<std::unique_ptr<WorkerProcess>()> make_worker);

}  // namespace distilld
