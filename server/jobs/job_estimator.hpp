#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/json/object.hpp>
#include <functional>
#include <memory>
#include <optional>

#include "api/job_types.hpp"
#include "base/file_rule.hpp"
#include "pipeline/core/job_spec.hpp"
#include "server/jobs/estimate_process.hpp"
#include "server/jobs/job_manager.hpp"

namespace distilld {

/// How estimates are made, and which files may be opened for a spec (none: any).
struct Estimates {
    EstimateRunner run;
    std::function<std::optional<FileRule>(const JobSpec&)> files{};
};

/// Says what a job would come to. Asks the manager how fast jobs were that may be like it, and lets the files be read
/// elsewhere; the coroutine stays on the caller's executor.
class JobEstimator {
  public:
    virtual ~JobEstimator() = default;
    /// `job` is one of a dry run: its resolved spec counts. The "estimate" of its answer.
    virtual boost::asio::awaitable<boost::json::object> estimate(api::Job job) = 0;
};

/// `manager` must outlive it.
[[nodiscard]] std::unique_ptr<JobEstimator> make_job_estimator(JobManager& manager, Estimates estimates);

}  // namespace distilld
