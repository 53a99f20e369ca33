#pragma once

#include "server/sinks/sink.hpp"

namespace distilld::sinks {

inline constexpr const char* kMlflowRunFile = "mlflow_run.json";

/// metrics.mlflow_url: a run on an MLflow tracking server, whose id is kept in kMlflowRunFile in the job's output.
/// Which experiment, and who asks, is said by MLflow's own environment variables.
[[nodiscard]] Result<std::unique_ptr<Sink>> make_mlflow_sink(const SinkContext& context,
                                                             boost::asio::any_io_executor thread);

}  // namespace distilld::sinks
