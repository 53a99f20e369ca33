#pragma once

#include <string>
#include <vector>

#include "api/job_types.hpp"
#include "server/http/http_message.hpp"
#include "server/http/http_server.hpp"
#include "server/jobs/job_manager.hpp"

/// What each key may do with which job.
namespace distilld {

/// Makes the routes that change a job (/v1/jobs/{id}…, /v1/fine_tuning/jobs/{id}…, every method but GET) refuse keys of
/// role submit unless they own the job: 403 not_your_job. The manager must outlive the routes.
void guard_jobs_of_others(std::vector<http::Route>& routes, JobManager& manager);

/// Whether the caller may do what is reserved to the owner (the id of a key; empty: no owner) and administrators. True
/// if the server has no keys.
[[nodiscard]] bool may_act_on(const std::string& owner_id, const http::Request& request);

/// Whether the caller may do everything: an administrator, or anybody if the server has no keys.
[[nodiscard]] bool is_for_all(const http::Request& request);

/// A job with its specs, as the caller may see it. Only the owner's key and administrators see the query of a URL,
/// which may hold a key.
[[nodiscard]] api::Job visible_job(api::Job job, const http::Request& request);

/// Makes the idempotency keys of two API keys differ.
[[nodiscard]] std::string scoped_idempotency_key(std::string key, const http::Request& request);

}  // namespace distilld
