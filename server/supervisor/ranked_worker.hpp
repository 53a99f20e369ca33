#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "server/supervisor/worker_process.hpp"

namespace distilld {

/// The ranks of a job, and the machines that they stand on.
struct RankLayout {
    std::uint32_t count = 0;         ///< 0 = the spec's training.ranks
    std::uint32_t per_machine = 0;   ///< ranks 0 to per_machine - 1 share the first machine, and so on; 0 = all of them
    std::string host = "127.0.0.1";  ///< of rank 0, which is on this machine, for the others
};

/// Makes the worker of a rank.
using RankFactory = std::function<std::unique_ptr<WorkerProcess>(std::uint32_t rank)>;

/// One worker for each rank of the job, as one: its events are those of rank 0, and so are commands but
/// for a limit, which all get. If a rank ends without the others, they end too, within seconds, and the last event is
/// the FailedEvent of the first of them, which names the rank. A start that is itself a rank of another launcher, or a
/// spec with one rank, is one worker. One executor.
std::unique_ptr<WorkerProcess> make_ranked_worker(boost::asio::any_io_executor executor, RankFactory make_worker,
                                                  RankLayout layout = {});

}  // namespace distilld
