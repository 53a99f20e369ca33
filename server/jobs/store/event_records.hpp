#pragma once

#include <concepts>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "api/job_fields.hpp"
#include "api/job_types.hpp"
#include "base/json_fields.hpp"
#include "base/type_table.hpp"
#include "pipeline/core/event_fields.hpp"
#include "pipeline/core/worker_events.hpp"

/// A worker's events, as lines of a job's history. The store sets the sequence, the manager the time.
namespace distilld {

/// How an event reads in a history. An event without an overload becomes a message with its name.
struct Headline {
    std::string message;
    api::EventType type = api::EventType::message;
    std::string level = "info";
};
Headline headline(const StartedEvent& event);
Headline headline(const ProgressEvent& event);
Headline headline(const EvaluationEvent& event);
Headline headline(const FiguresEvent& event);
Headline headline(const RolloutEvent& event);
Headline headline(const CheckpointEvent& event);
Headline headline(const LogEvent& event);
Headline headline(const WaitingEvent& event);

/// Progress as the REST API shows it, shortened because thousands of records are kept: without the times of the stages,
/// the ranks and most counters of the teacher's side.
void shorten_progress(boost::json::object& progress);

/// The fields of an event that a record keeps.
template <class Event>
boost::json::object history_data(const Event& event) {
    boost::json::object data;
    if constexpr (std::derived_from<Event, ProgressEvent>) {
        data = write_fields(api::WithPercent<Event>{event});
        shorten_progress(data);
    } else if constexpr (!std::same_as<Event, LogEvent>) {  // the record has its fields already
        data = write_fields(event);
    }
    return data;
}

/// The record of an event of `kTable` (base/type_table.hpp), with its fields as data.
template <const auto& kTable = kWorkerEvents, class Event>
[[nodiscard]] api::JobEvent record_of(const Event& event) {
    Headline line;
    if constexpr (requires { headline(event); }) {
        line = headline(event);
    } else {
        line.message = row_of<Event>(kTable).name;
    }
    api::JobEvent record;
    record.level = std::move(line.level);
    record.type = line.type;
    record.message = std::move(line.message);
    record.data = history_data(event);
    return record;
}

/// For example, a request of a user.
[[nodiscard]] api::JobEvent message_record(std::string message);

/// The job reached its present state.
[[nodiscard]] api::JobEvent state_record(const api::Job& job);

}  // namespace distilld
