#pragma once

#include <string>

#include "base/error.hpp"
#include "server/cli/jobs/rest_client.hpp"

namespace distilld::cli {

/// The id of the job that `said` means: an id, a prefix of one, or a name. Of several jobs, takes the only one that has
/// not ended; otherwise the error lists them. Without a match, returns `said`, and the service reports it. Blocks.
Result<std::string> find_job(RestClient& client, const std::string& said);

}  // namespace distilld::cli
