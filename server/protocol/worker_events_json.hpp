#pragma once

#include <boost/json/object.hpp>

#include "base/error.hpp"
#include "pipeline/core/worker_events.hpp"

/// The events of a run as JSON objects, field by field under the names of pipeline/core/worker_events.hpp. Numbers that
/// are not finite are null, and null is read as NaN.
namespace distilld {

[[nodiscard]] boost::json::object event_json(const ProgressEvent& event);
[[nodiscard]] boost::json::object event_json(const StartedEvent& event);
[[nodiscard]] boost::json::object event_json(const EvaluationEvent& event);
[[nodiscard]] boost::json::object event_json(const CheckpointEvent& event);
[[nodiscard]] boost::json::object event_json(const LogEvent& event);
[[nodiscard]] boost::json::object event_json(const FinishedEvent& event);
[[nodiscard]] boost::json::object event_json(const CancelledEvent& event);
[[nodiscard]] boost::json::object event_json(const FailedEvent& event);

/// Missing fields keep their defaults, unknown ones are ignored; a field of the wrong type is an error that names it.
template <class Event>
Result<Event> event_from_json(const boost::json::object& json);

}  // namespace distilld
