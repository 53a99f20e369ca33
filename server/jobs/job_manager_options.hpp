#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "api/job_spec_json.hpp"
#include "base/file_rule.hpp"
#include "pipeline/core/job_spec.hpp"
#include "server/jobs/slot_table.hpp"
#include "server/supervisor/restart_policy.hpp"
#include "server/supervisor/worker_process.hpp"

namespace distilld {

/// What the operator does not allow of a spec, whose paths are absolute. Blocks; any thread, several at once.
using Admission = std::function<api::SpecViolations(const JobSpec&)>;

struct JobManagerOptions {
    std::filesystem::path working_directory;          ///< relative paths of specs start here; must be absolute
    std::uint32_t slots = 1;                          ///< jobs that run at once
    std::vector<Slot> places{};                       ///< one for each of them; empty = they share the machine
    std::chrono::milliseconds metrics_interval{500};  ///< shortest time between two stored metrics events of a job
    std::uint32_t metrics_kept = 20000;               ///< stored metrics events of a job, about
    std::chrono::seconds cancel_grace{120};           ///< between the cancel command and the worker's end by force
    std::chrono::milliseconds stop_limit{std::chrono::seconds(270)};  ///< of stop(): what runs then is killed
    std::chrono::milliseconds heartbeat{10000};                       ///< longest wait of wait_events()
    std::chrono::hours idempotency_lifetime{24};
    std::chrono::milliseconds store_retry{1000};  ///< between tries to write to a store that refused
    std::uint32_t max_queued = 10000;             ///< jobs that wait; more are refused
    RestartLimits restarts{};                     ///< of workers that die or cannot be started
    /// Asked before anything that a spec names is looked at. Empty: everything is allowed.
    Admission admit{};
    /// The same of a job that was taken before, whose spec may name what the service has put into it.
    Admission admit_again{};
    /// Which files may be opened for a spec that is admitted; none: any.
    std::function<std::optional<FileRule>(const JobSpec&)> files{};
};

/// Makes a worker process on the executor given (the manager's), for the slot that its job has.
using WorkerFactory = std::function<std::unique_ptr<WorkerProcess>(boost::asio::any_io_executor, const Slot&)>;

}  // namespace distilld
