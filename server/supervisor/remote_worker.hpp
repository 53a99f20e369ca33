#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <memory>

#include "base/job_attempt.hpp"
#include "server/supervisor/attempt_record.hpp"
#include "server/supervisor/place.hpp"
#include "server/supervisor/remote_attempts.hpp"
#include "server/supervisor/worker_output.hpp"
#include "server/supervisor/worker_process.hpp"

namespace distilld {

struct RemoteWorkerOptions {
    JobAttempt attempt;
    std::shared_ptr<AttemptRecord> record;
    std::unique_ptr<Place> place;
    bool adopted = false;                 ///< an earlier run of the service has begun it
    WorkerOutput::LineSink output;        ///< takes what the worker writes to stderr; may be empty
    std::chrono::seconds gone_grace{15};  ///< for messages on their way when the place is gone
    std::chrono::seconds kill_grace{60};  ///< for the place to be gone after kill()
};

/// A worker in another place. Its relay connects through `attempts`, which must outlive this. If the place is gone and
/// the relay has not said how the worker ended, the last event is a FailedEvent as of a child that died; after kill(),
/// it also is if the place does not go. Cancelling run(), or destroying this before run() has returned, leaves the
/// worker alone: a later run of the service may adopt it. Destroying it afterwards tells the relay that all is over.
/// One executor.
std::unique_ptr<WorkerProcess> make_remote_worker(boost::asio::any_io_executor executor, RemoteAttempts& attempts,
                                                  RemoteWorkerOptions options);

}  // namespace distilld
