#pragma once

#include <boost/json/value.hpp>
#include <string>

#include "api/job_types.hpp"
#include "base/error.hpp"

/// Answers of the service as text for people. What does not read as such an answer is an error.
namespace distilld::cli {

/// A field a line.
[[nodiscard]] std::string job_text(const api::Job& job);

/// A job a line.
[[nodiscard]] Result<std::string> jobs_table(const boost::json::value& answer);
/// The same with what else is asked for in a glance: share done, held-out loss, rate, time left, priority, slot, owner.
[[nodiscard]] Result<std::string> wide_jobs_table(const boost::json::value& answer);
/// A checkpoint a line.
[[nodiscard]] Result<std::string> checkpoints_table(const boost::json::value& answer);
/// A metric a line: how many points there are, the first, the last, the smallest and the greatest value.
[[nodiscard]] Result<std::string> metrics_table(const boost::json::value& answer);
/// What a dry run says that a job would come to.
[[nodiscard]] Result<std::string> estimate_text(const boost::json::value& answer);
/// What was deleted.
[[nodiscard]] Result<std::string> deleted_text(const boost::json::value& answer);

}  // namespace distilld::cli
