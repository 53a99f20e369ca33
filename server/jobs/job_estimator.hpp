#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/json/object.hpp>
#include <memory>

#include "api/job_types.hpp"
#include "server/jobs/job_manager.hpp"

namespace distilld {

/// Says what a job would come to. Reads files on a thread of its own, and asks the manager how fast jobs like it were;
/// the coroutine stays on the caller's executor.
class JobEstimator {
  public:
    virtual ~JobEstimator() = default;
    /// `job` is one of a dry run: its resolved spec counts. The "estimate" of its answer.
    virtual boost::asio::awaitable<boost::json::object> estimate(api::Job job) = 0;
};

/// `manager` must outlive it.
[[nodiscard]] std::unique_ptr<JobEstimator> make_job_estimator(JobManager& manager);

}  // namespace distilld
