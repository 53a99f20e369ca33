#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "api/job_spec_json.hpp"
#include "base/file_rule.hpp"
#include "pipeline/core/job_spec.hpp"
#include "server/jobs/slot_table.hpp"
#include "server/settings/service_settings.hpp"
#include "server/supervisor/restart_policy.hpp"
#include "server/supervisor/worker_process.hpp"

namespace distilld {

/// What the operator does not allow of a spec, whose paths are absolute. Blocks; any thread, several at once.
using Admission = std::function<api::SpecViolations(const JobSpec&)>;

struct JobManagerOptions : JobsSettings {
    JobManagerOptions() { slots = 1; }
    explicit JobManagerOptions(JobsSettings settings) : JobsSettings(std::move(settings)) {}

    std::filesystem::path working_directory;  ///< relative paths of specs start here; must be absolute
    std::vector<Slot> places{};               ///< one for each of `slots`; empty = they share the machine
    std::chrono::milliseconds stop_limit{std::chrono::seconds(270)};   ///< of stop(): what runs then is killed
    std::chrono::milliseconds heartbeat = ServerSettings{}.heartbeat;  ///< longest wait of wait_events()
    /// Of workers that die or cannot be started.
    RestartLimits restarts{.max_restarts = max_worker_restarts, .max_oom_restarts = max_oom_restarts};
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
