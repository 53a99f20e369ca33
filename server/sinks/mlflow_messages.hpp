#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "server/sinks/sink.hpp"

/// What MLflow's REST API is told of a run.
namespace distilld::sinks {

/// Step of the newest value of each metric, and the parameters, that a run on the server has.
struct MlflowHistory {
    std::map<std::string, std::uint64_t, std::less<>> last_steps;
    std::vector<std::string> params;
};

/// Of the answer to runs/get.
[[nodiscard]] MlflowHistory read_mlflow_history(const boost::json::object& answer);

/// The spec as parameters, {"key", "value"} each: "training.learning_rate"; without those that `known` names.
[[nodiscard]] std::vector<boost::json::object> mlflow_params(const std::string& spec_json,
                                                             const std::vector<std::string>& known);

/// The metrics of the records, but for those that the server has: a run that goes on computes some steps anew.
[[nodiscard]] std::vector<boost::json::object> mlflow_metrics(const std::vector<SinkItem>& items,
                                                              const MlflowHistory& history);

/// FINISHED, KILLED or FAILED.
[[nodiscard]] const char* mlflow_status(EndRecord::Status status);

}  // namespace distilld::sinks
