#pragma once

#include <string>

#include "api/http_message.hpp"
#include "server/jobs/job_manager.hpp"

/// What all endpoints that take a job have in common.
namespace distilld {

/// Of the request's Idempotency-Key; empty: it has none. Refuses one that is no key.
[[nodiscard]] std::string idempotency_key_of(const api::Request& request);

/// The answer to a request for a job of which none came: of any outcome but created, existing and valid. May refuse().
[[nodiscard]] api::Response refused_submission(const api::Request& request, const SubmitOutcome& outcome);

}  // namespace distilld
