#pragma once

#include <vector>

#include "api/job_spec.hpp"
#include "server/jobs/checks/path_claims.hpp"

namespace distilld {

/// claims_of(), with PathClaim::is_awaited. Looks at the disk.
[[nodiscard]] std::vector<PathClaim> claims_now(const JobSpec& spec);

}  // namespace distilld
