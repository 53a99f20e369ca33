#pragma once

#include <string>
#include <vector>

#include "server/estimate/job_inspection.hpp"
#include "server/estimate/run_estimate.hpp"

namespace distilld {

/// What estimate_run() wants to know, from what was found out about the job, the machine and the teacher's folder. What
/// is not known is left out, and `notes` says why.
[[nodiscard]] EstimateInputs read_estimate_inputs(const JobSpec& spec, JobInspection inspection,
                                                  std::vector<std::string>& notes);

/// What two runs of one student have in common, dtype, precision of the weights and machine aside; empty: it is not
/// known.
[[nodiscard]] std::string shape_key(const JobSpec& spec);

/// The machine multiplies bf16, so that "auto" takes it (docs/tuning.md).
[[nodiscard]] bool multiplies_bf16(const std::string& cpuinfo);

}  // namespace distilld
