#pragma once

#include <map>
#include <string>

#include "server/http/http_message.hpp"
#include "server/jobs/job_manager.hpp"
#include "server/jobs/routes/query_reader.hpp"

/// Shared by all endpoints about jobs, in whatever format they show them.
namespace distilld {

/// The key in the request's Idempotency-Key, made unique to the caller; empty if there is none. Refuses an invalid key.
[[nodiscard]] std::string idempotency_key_of(const http::Request& request);

/// The pairs of the query parameters metadata[NAME]=TEXT. More or longer pairs than a job can have are wrong.
[[nodiscard]] std::map<std::string, std::string> metadata_filter_of(const http::Request& request, QueryReader& asked);

}  // namespace distilld
