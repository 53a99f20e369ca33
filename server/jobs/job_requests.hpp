#pragma once

#include <map>
#include <string>

#include "api/http_message.hpp"
#include "server/jobs/job_manager.hpp"
#include "server/jobs/query_reader.hpp"

/// What the endpoints about jobs have in common, whatever shape they show them in.
namespace distilld {

/// Of the request's Idempotency-Key, and of nobody else's of the same name; empty: it has none. Refuses one that is no
/// key.
[[nodiscard]] std::string idempotency_key_of(const api::Request& request);

/// The pairs of the query parameters metadata[NAME]=TEXT. More or longer ones than a job can have are wrong.
[[nodiscard]] std::map<std::string, std::string> metadata_filter_of(const api::Request& request, QueryReader& asked);

}  // namespace distilld
