#pragma once

#include <boost/json/value.hpp>
#include <string>

#include "api/job_types.hpp"
#include "base/error.hpp"

/// Answers of the service as text for people. An answer of another form is an error.
namespace distilld::cli {

/// One field per line.
[[nodiscard]] std::string job_text(const api::Job& job);

/// One job per line.
[[nodiscard]] Result<std::string> jobs_table(const boost::json::value& answer);
/// The same with more columns: share done, held-out loss, rate, time left, priority, slot, owner.
[[nodiscard]] Result<std::string> wide_jobs_table(const boost::json::value& answer);
/// One checkpoint per line.
[[nodiscard]] Result<std::string> checkpoints_table(const boost::json::value& answer);
/// One metric per line: the number of points; the first, last, smallest and greatest value.
[[nodiscard]] Result<std::string> metrics_table(const boost::json::value& answer);
/// The estimate of a dry run.
[[nodiscard]] Result<std::string> estimate_text(const boost::json::value& answer);
/// One machine per line.
[[nodiscard]] Result<std::string> nodes_table(const boost::json::value& answer);
/// What was deleted.
[[nodiscard]] Result<std::string> deleted_text(const boost::json::value& answer);

}  // namespace distilld::cli
