#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <memory>
#include <span>

#include "server/sinks/sink.hpp"
#include "server/sinks/sink_runner.hpp"

namespace distilld::sinks {

/// Records that a sink receives; every sink gets the run's start and end.
enum class Takes { figures, spans };

/// One kind of sink.
struct SinkRow {
    const char* name;  ///< in messages, and as a metric label
    Takes takes;
    SinkPace pace;
    SinkFactory make;
};

/// All sinks, in the order of opening. To add one, write a file and add a row in registry.cpp.
[[nodiscard]] std::span<const SinkRow> sink_rows();

// The kinds, each in its own file.

/// metrics.jsonl_file: one line of JSON per record.
[[nodiscard]] Result<std::unique_ptr<Sink>> make_jsonl_sink(const SinkContext& context,
                                                            boost::asio::any_io_executor thread);

/// metrics.tensorboard_dir: an event file per attempt of the run.
[[nodiscard]] Result<std::unique_ptr<Sink>> make_tensorboard_sink(const SinkContext& context,
                                                                  boost::asio::any_io_executor thread);

/// metrics.mlflow_url: a run on an MLflow tracking server. kMlflowRunFile in the job's output keeps its id. MLflow's
/// own environment variables set experiment and credentials.
[[nodiscard]] Result<std::unique_ptr<Sink>> make_mlflow_sink(const SinkContext& context,
                                                             boost::asio::any_io_executor thread);

/// metrics.otlp_url, or OpenTelemetry's own environment variables: sends the spans of the stages to a collector, as
/// OTLP over HTTP with JSON.
[[nodiscard]] Result<std::unique_ptr<Sink>> make_otlp_sink(const SinkContext& context,
                                                           boost::asio::any_io_executor thread);

}  // namespace distilld::sinks
