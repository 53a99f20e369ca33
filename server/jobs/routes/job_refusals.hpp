#pragma once

#include "server/http/http_message.hpp"
#include "server/jobs/job_answers.hpp"
#include "server/jobs/job_manager.hpp"

namespace distilld {

/// The answer to a refused request: status, code and text of the verdict's row, with the job id from the path or the
/// violations of the request.
[[nodiscard]] http::Response refusal(const http::Request& request, const JobOutcome& outcome);

/// Refuses a request because no job has the id in the path.
[[noreturn]] void job_not_found(const http::Request& request);

/// The job with the id in the path; calls job_not_found() if there is none. `request` must outlive the call.
[[nodiscard]] boost::asio::awaitable<api::Job> job_of(JobManager& manager, const http::Request& request);

/// The job afterwards, with `status`; or refusal().
[[nodiscard]] http::Response verb_answer(const http::Request& request, const JobOutcome& outcome, unsigned status);

}  // namespace distilld
