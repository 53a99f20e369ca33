#pragma once

#include <map>
#include <string>
#include <vector>

#include "api/job_spec.hpp"

namespace distilld {

/// Additional NAME=value settings for a child that uses libtorch.
///
/// The threads of the OpenMP runtime wait for each other after every operation. Spinning is fast on idle cores,
/// sleeping on busy ones, and each takes up to twice as long in the other case. The threads therefore spin for about as
/// long as a sleep and a wake-up take, which is never far from the optimum (docs/decisions/0004). Nothing is set if the
/// user has set OMP_WAIT_POLICY, GOMP_SPINCOUNT or KMP_BLOCKTIME.
///
/// cuBLAS is reproducible bit by bit only with a fixed workspace (its documentation, "Results reproducibility"): 32 MiB
/// of a GPU's memory, unless the user has set CUBLAS_WORKSPACE_CONFIG.
[[nodiscard]] std::vector<std::string> worker_environment();

/// The complete environment of a worker, as NAME=value: `settings`, and what it needs of ours (paths, language,
/// settings of its libraries). Of the operator's keys (DISTILLD_KEY_…) it gets only those that the job names for its
/// teachers. It gets the keys of a sink (MLFLOW_TRACKING_TOKEN, OTEL_EXPORTER_OTLP_HEADERS, …) only if the job writes
/// to the operator's own server (MLFLOW_TRACKING_URI, OTEL_EXPORTER_OTLP_ENDPOINT) or names no OpenTelemetry collector.
/// A worker cannot send keys that it lacks to endpoints of the spec's author. `spec`: the job's; null names no key.
[[nodiscard]] std::vector<std::string> child_environment(std::vector<std::string> settings, const JobSpec* spec);

/// The operator's keys that child_environment() would pass on for this job, by name, if they are set.
[[nodiscard]] std::map<std::string, std::string> keys_of_job(const JobSpec* spec);

}  // namespace distilld
