#pragma once

#include <functional>

#include "api/job_spec_json.hpp"
#include "server/jobs/job_manager.hpp"

namespace distilld {

/// Workers that are started only when `admit` has nothing against their job's spec: what a link pointed to when the job
/// was submitted may be another thing by the time it is used. A job that it refuses fails with invalid_input.
WorkerFactory make_checked_workers(WorkerFactory workers, std::function<api::SpecViolations(const JobSpec&)> admit);

}  // namespace distilld
