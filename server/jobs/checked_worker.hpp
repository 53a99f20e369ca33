#pragma once

#include <functional>
#include <optional>

#include "api/job_spec_json.hpp"
#include "base/file_rule.hpp"
#include "server/jobs/job_manager.hpp"

namespace distilld {

/// What is asked of a job's spec when its worker is started.
struct WorkerChecks {
    std::function<api::SpecViolations(const JobSpec&)> admit;
    /// Which files its worker may open, see WorkerStart; none: any.
    std::function<std::optional<FileRule>(const JobSpec&)> files{};
};

/// Workers that are started only when `admit` has nothing against their job's spec: what a link pointed to when the job
/// was submitted may be another thing by the time it is used. A job that it refuses fails with the
/// code of the first violation. Both are asked on threads of the factory's own, for they look at the disk.
WorkerFactory make_checked_workers(WorkerFactory workers, WorkerChecks checks);

}  // namespace distilld
