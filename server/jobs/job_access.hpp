#pragma once

#include <string>
#include <vector>

#include "api/http_message.hpp"
#include "api/job_types.hpp"
#include "server/http/http_server.hpp"
#include "server/jobs/job_manager.hpp"

/// What a key may do with which job.
namespace distilld {

/// Makes each route that changes a job (/v1/jobs/{id}…, /v1/fine_tuning/jobs/{id}…, every method but GET) refuse keys
/// of role submit that are not the job's owner's: 403 not_your_job. The manager must outlive the routes.
void guard_jobs_of_others(std::vector<http::Route>& routes, JobManager& manager);

/// Whether the caller may do what only the owner of something (the id of a key; empty: nobody's) and administrators
/// may. True where the server asks for no keys.
[[nodiscard]] bool may_act_on(const std::string& owner_id, const api::Request& request);

/// Whether the caller may do everything: an administrator, or anybody where the server asks for no keys.
[[nodiscard]] bool is_for_all(const api::Request& request);

/// A job with its specs, as the caller may see it: to other keys than its owner's, those of administrators excepted, a
/// URL's query, which may hold a key, is not shown.
[[nodiscard]] api::Job visible_job(api::Job job, const api::Request& request);

/// Jobs of two keys never have one idempotency key.
[[nodiscard]] std::string scoped_idempotency_key(std::string key, const api::Request& request);

}  // namespace distilld
