#pragma once

#include <string>

#include "base/error.hpp"
#include "server/cli/rest_client.hpp"

namespace distilld::cli {

/// The id of the job that `said` means: its id, the beginning of one, or its name. Of several the one that has not
/// ended; where that are none or more than one, the error lists them. What means no job is given back as it is: the
/// service says so. Blocks.
Result<std::string> find_job(RestClient& client, const std::string& said);

}  // namespace distilld::cli
