#pragma once

#include "api/http_message.hpp"
#include "server/jobs/job_manager.hpp"

namespace distilld {

/// The answer to a request that was refused: status, code and text of the verdict's row, with the job whose id stands
/// in the path, or with what is wrong with what was asked.
[[nodiscard]] api::Response refusal(const api::Request& request, const JobOutcome& outcome);

/// The job as it is then, with `status`; or refusal().
[[nodiscard]] api::Response verb_answer(const api::Request& request, const JobOutcome& outcome, unsigned status);

}  // namespace distilld
