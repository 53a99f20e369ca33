#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "api/job_spec.hpp"
#include "api/job_spec_json.hpp"
#include "base/files/file_rule.hpp"
#include "server/settings/service_settings.hpp"
#include "server/supervisor/restart_policy.hpp"
#include "server/supervisor/slot.hpp"

namespace distilld {

/// What the operator does not allow in a spec with absolute paths. Blocks; any thread, several at once.
using SpecPolicy = std::function<api::SpecViolations(const JobSpec&)>;

struct JobManagerOptions : JobsSettings {
    JobManagerOptions() { slots = 1; }
    explicit JobManagerOptions(JobsSettings settings) : JobsSettings(std::move(settings)) {}

    std::filesystem::path working_directory;  ///< relative paths of specs start here; must be absolute
    std::vector<Slot> slot_layout{};          ///< one per slot; empty = all share the machine
    std::chrono::milliseconds stop_limit{std::chrono::seconds(270)};   ///< of stop(): workers that still run then are
                                                                       ///< killed
    std::chrono::milliseconds heartbeat = ServerSettings{}.heartbeat;  ///< longest wait of wait_events()
    /// For workers that die or cannot be started.
    RestartLimits restarts{.max_restarts = max_worker_restarts, .max_oom_restarts = max_oom_restarts};
    /// Asked before any path of the spec is looked at. Empty: everything is allowed.
    SpecPolicy policy{};
    /// The same for a job accepted earlier; its spec may contain paths that the service added.
    SpecPolicy start_policy{};
    /// Which files may be opened for an admitted spec; none: any.
    std::function<std::optional<FileRule>(const JobSpec&)> files{};
};

}  // namespace distilld
