#pragma once

#include <optional>
#include <string>

#include "base/error.hpp"
#include "pipeline/core/job_spec.hpp"

namespace distilld {

/// What a checkpoint remembers of its run: the spec and the hash of the dataset, as JSON text.
[[nodiscard]] std::string make_run_identity(const JobSpec& spec, const std::string& dataset_hash);

/// Whether a run with `identity` may go on with `spec` and the same bits: what decides the micro-batches and the
/// updates must be equal; lengths of the run, endpoints and concurrency may differ. The error names the first field
/// that differs.
[[nodiscard]] Result<void> check_run_identity(const std::string& identity, const JobSpec& spec,
                                              const std::string& dataset_hash);

/// The number of threads that libtorch computes with decides how sums are split, so another one gives other last bits.
/// That is no reason to refuse a resume on another machine, but one to say so. `spec` holds the number in force.
[[nodiscard]] std::optional<std::string> threads_warning(const std::string& identity, const JobSpec& spec);

/// Where `spec` leaves batch_size to the memory probe, the run that is resumed has decided: its number is taken over.
void adopt_batch_size(const std::string& identity, JobSpec& spec);

}  // namespace distilld
