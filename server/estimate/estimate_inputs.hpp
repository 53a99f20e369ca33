#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "server/estimate/run_estimate.hpp"

namespace distilld {

/// Data files of more bytes together are not read for an estimate, and packed ones never.
inline constexpr std::uint64_t kMaxEstimatedData = std::uint64_t{4} << 20;

/// What estimate_run() wants to know, read from the student's folder and, where it needs them and they are small, the
/// data. What cannot be read is left out, and `notes` says why. Paths are absolute. Blocks, for some seconds at most.
[[nodiscard]] EstimateInputs read_estimate_inputs(const JobSpec& spec, std::vector<std::string>& notes);

/// What two runs of one student have in common, dtype, precision of the weights and machine aside; empty: it is not
/// known.
[[nodiscard]] std::string shape_key(const JobSpec& spec);

/// The machine multiplies bf16, so that "auto" takes it (docs/tuning.md).
[[nodiscard]] bool multiplies_bf16(const std::string& cpuinfo);

}  // namespace distilld
