#pragma once

#include <vector>

#include "api/job_spec.hpp"
#include "api/job_spec_json.hpp"
#include "server/jobs/checks/path_claims.hpp"

namespace distilld {

/// The claims of a job with this spec: each path that it names, and the folder of its checkpoints where that is a link
/// out of the output. The spec's paths must be absolute. Follows links on the disk.
[[nodiscard]] std::vector<PathClaim> claims_of(const JobSpec& spec);

/// Why a job cannot have its claims: "conflict" if it can have them later, else "path_not_allowed".
[[nodiscard]] api::SpecViolations claim_violation(const ClaimConflict& conflict);

}  // namespace distilld
