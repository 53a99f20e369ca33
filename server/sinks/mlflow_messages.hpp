#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "server/sinks/sink.hpp"

/// Messages about a run to MLflow's REST API.
namespace distilld::sinks {

inline constexpr const char* kMlflowRunFile = "mlflow_run.json";

/// What a run on the server already has: the step of the newest value of each metric, and the parameters.
struct MlflowHistory {
    std::map<std::string, std::uint64_t, std::less<>> last_steps;
    std::vector<std::string> params;
};

/// Reads an answer to runs/get.
[[nodiscard]] MlflowHistory read_mlflow_history(const boost::json::object& answer);

/// The spec as parameters, each {"key": "training.learning_rate", "value": …}, without the keys in `known`.
[[nodiscard]] std::vector<boost::json::object> mlflow_params(const std::string& spec_json,
                                                             const std::vector<std::string>& known);

/// The metrics of the records, except those that the server already has: a resumed run repeats some steps.
[[nodiscard]] std::vector<boost::json::object> mlflow_metrics(const std::vector<SinkItem>& items,
                                                              const MlflowHistory& history);

/// FINISHED, KILLED or FAILED.
[[nodiscard]] const char* mlflow_status(EndRecord::Status status);

}  // namespace distilld::sinks
