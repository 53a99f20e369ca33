#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/json/object.hpp>
#include <functional>
#include <optional>

#include "api/job_spec.hpp"
#include "base/files/file_rule.hpp"
#include "server/jobs/checks/estimate_process.hpp"
#include "server/jobs/job_manager.hpp"

namespace distilld {

/// How estimates are made, and which files may be opened for a spec (none: any).
struct Estimates {
    EstimateRunner run;
    std::function<std::optional<FileRule>(const JobSpec&)> files{};
};

/// The "estimate" in the answer to `validated`, a dry run. Asks the manager for the speed of similar jobs, and has the
/// files read elsewhere; the coroutine stays on the caller's executor. Manager and estimates must outlive it.
[[nodiscard]] boost::asio::awaitable<boost::json::object> estimate_of(JobManager& manager, const Estimates& estimates,
                                                                      JobOutcome validated);

}  // namespace distilld
