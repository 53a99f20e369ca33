#include "server/jobs/event_records.hpp"

#include <cmath>
#include <cstdio>

namespace distilld {
namespace {

boost::json::value number(double value) {
    return std::isfinite(value) ? boost::json::value(value) : boost::json::value(nullptr);
}

std::string short_text(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.4g", value);
    return text;
}

}  // namespace

api::JobEvent record_of(const StartedEvent& event) {
    api::JobEvent record;
    record.message =
        event.first_step == 0 ? "training started" : "training resumed at step " + std::to_string(event.first_step);
    if (!event.teacher.empty()) {
        record.message += "; teacher: " + event.teacher;
    }
    record.data["total_steps"] = event.total_steps;
    record.data["first_step"] = event.first_step;
    record.data["parameters"] = event.parameters;
    record.data["dataset_rows"] = event.dataset_rows;
    record.data["dataset_tokens"] = event.dataset_tokens;
    record.data["dtype"] = event.dtype;
    record.data["teacher"] = event.teacher;
    record.data["batch_size"] = event.batch_size;
    record.data["micro_batches"] = event.micro_batches;
    return record;
}

api::JobEvent record_of(const ProgressEvent& event) {
    api::JobEvent record;
    record.type = api::EventType::metrics;
    record.message = "step " + std::to_string(event.step) + " of " + std::to_string(event.total_steps) + ", loss " +
                     short_text(event.loss);
    record.data = api::to_json_object(event);
    record.data.erase("stages");
    record.data["fetch"] = boost::json::object{{"in_flight", event.fetch.in_flight},
                                               {"concurrency", event.fetch.concurrency},
                                               {"buffered", event.fetch.buffered},
                                               {"retries", event.fetch.retries},
                                               {"hedges", event.fetch.hedges}};
    return record;
}

api::JobEvent record_of(const EvaluationEvent& event) {
    api::JobEvent record;
    record.type = api::EventType::evaluation;
    record.message = "step " + std::to_string(event.step) + ", held-out loss " + short_text(event.loss);
    record.data["step"] = event.step;
    record.data["loss"] = number(event.loss);
    record.data["tokens"] = event.tokens;
    return record;
}

api::JobEvent record_of(const CheckpointEvent& event) {
    api::JobEvent record;
    record.type = api::EventType::checkpoint;
    record.message = "checkpoint of step " + std::to_string(event.step) + " in " + event.folder;
    record.data["step"] = event.step;
    record.data["folder"] = event.folder;
    record.data["seconds"] = number(event.seconds);
    return record;
}

api::JobEvent record_of(const LogEvent& event) {
    api::JobEvent record;
    record.level = event.level == "warn" || event.level == "error" ? event.level : "info";
    record.message = event.message;
    return record;
}

api::JobEvent state_record(const api::Job& job) {
    api::JobEvent record;
    record.type = api::EventType::state;
    record.level = job.state == api::JobState::failed ? "error" : "info";
    record.message = std::string("job ") + api::to_string(job.state);
    record.data["state"] = api::to_string(job.state);
    if (job.status_reason) {
        record.message += ": " + job.status_reason->message;
        record.data["code"] = job.status_reason->code;
    }
    return record;
}

}  // namespace distilld
