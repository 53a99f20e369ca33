#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace distilld {

/// NAME=value settings that a libtorch child is started with.
///
/// The OpenMP runtime's threads wait for each other after every operation. Spinning is fast while nothing else wants
/// the cores, sleeping while something does, and each costs up to twice the time in the other case; so they spin for
/// about as long as going to sleep and being woken takes, which is never far from the better one (docs/decisions/0004).
/// Nothing is set when the user has set OMP_WAIT_POLICY, GOMP_SPINCOUNT or KMP_BLOCKTIME.
///
/// cuBLAS gives the same bits each time where its workspace does not change (its documentation, "Results
/// reproducibility"): 32 MiB of a GPU's memory, unless the user has set CUBLAS_WORKSPACE_CONFIG.
[[nodiscard]] std::vector<std::string> worker_environment();

/// All of a worker's environment, as NAME=value: `settings`, and of ours what it needs to run (paths, language, the
/// settings of its libraries). Of the operator's keys (DISTILLD_KEY_…) it gets those that its job names for its
/// teachers, and the keys of an MLflow server or an OpenTelemetry collector (MLFLOW_TRACKING_TOKEN, …;
/// OTEL_EXPORTER_OTLP_HEADERS, …) when the job writes to the server that the operator's own MLFLOW_TRACKING_URI or
/// OTEL_EXPORTER_OTLP_ENDPOINT names: what a worker does not have it cannot send to the endpoints of whoever wrote the
/// spec. `spec_json` is the job's spec; one that is not valid names no key.
[[nodiscard]] std::vector<std::string> child_environment(std::vector<std::string> settings, std::string_view spec_json);

}  // namespace distilld
