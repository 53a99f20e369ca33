#pragma once

#include <vector>

#include "pipeline/core/job_spec.hpp"
#include "server/jobs/path_claims.hpp"

namespace distilld {

/// What a job with this spec, whose paths are absolute, claims: each path that it names, and the folder of its
/// checkpoints where that is a link out of the output. Links are followed: looks at the disk.
[[nodiscard]] std::vector<PathClaim> claims_of(const JobSpec& spec);

}  // namespace distilld
