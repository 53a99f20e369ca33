#pragma once

#include <string>
#include <vector>

#include "api/spec_fields.hpp"
#include "base/error.hpp"
#include "pipeline/core/job_spec.hpp"

namespace distilld {

/// What a checkpoint remembers of its run: the spec and the hash of the dataset, as JSON text. The table says which
/// fields there are, and which of them decide weights.
[[nodiscard]] std::string make_run_identity(const JobSpec& spec, const std::string& dataset_hash,
                                            const api::SpecTable& table = api::spec_table());

/// Whether a run with `identity` may go on with `spec`: the dataset and every field that decides weights must be the
/// same; others may differ. The error names the first field that does.
[[nodiscard]] Result<void> check_run_identity(const std::string& identity, const JobSpec& spec,
                                              const std::string& dataset_hash,
                                              const api::SpecTable& table = api::spec_table());

/// One line for each field that differs and decides the last bits of weights, as the number of threads does, among
/// which libtorch splits its sums. That is no reason to refuse a resume on another machine, but one to say so. `spec`
/// holds the values in force.
[[nodiscard]] std::vector<std::string> last_bits_warnings(const std::string& identity, const JobSpec& spec,
                                                          const api::SpecTable& table = api::spec_table());

/// Where `spec` leaves batch_size to the memory probe, the run that is resumed has decided: its number is taken over.
void adopt_batch_size(const std::string& identity, JobSpec& spec);

}  // namespace distilld
