#pragma once

#include <string>
#include <vector>

#include "server/estimate/job_inspection.hpp"
#include "server/estimate/run_estimate.hpp"

namespace distilld {

/// The inputs of estimate_run(), from the job, the machine and the teacher's folder. Unknown inputs are left out, with
/// a note in `notes`.
[[nodiscard]] EstimateInputs read_estimate_inputs(const JobSpec& spec, JobInspection inspection,
                                                  std::vector<std::string>& notes);

/// A key that runs of the same student share, regardless of dtype, precision of the weights and machine; empty:
/// unknown.
[[nodiscard]] std::string shape_key(const JobSpec& spec);

}  // namespace distilld
