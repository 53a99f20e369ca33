#include "server/jobs/store/event_records.hpp"

#include <array>
#include <cstdio>

#include "pipeline/core/loss_kind.hpp"

namespace distilld {
namespace {

constexpr std::array kFetchFieldsKept{"in_flight", "concurrency", "buffered", "retries", "hedges", "store"};

constexpr std::size_t kFiguresShown = 8;

std::string short_text(double value) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.4g", value);
    return text.data();
}

}  // namespace

Headline headline(const StartedEvent& event) {
    Headline line;
    if (!event.store.empty()) {
        line.message = "generating started: " + std::to_string(event.total_steps - event.first_step) + " of " +
                       std::to_string(event.total_steps) + " rows are to go to " + event.store;
    } else {
        line.message =
            event.first_step == 0 ? "training started" : "training resumed at step " + std::to_string(event.first_step);
    }
    if (!event.tokenizer.empty()) {
        line.message += "; tokenizer: " + event.tokenizer;
    }
    if (!event.teacher.empty()) {
        line.message += "; teacher: " + event.teacher;
    }
    return line;
}

Headline headline(const ProgressEvent& event) {
    if (event.generates) {
        return {"row " + std::to_string(event.step) + " of " + std::to_string(event.total_steps),
                api::EventType::metrics};
    }
    return {"step " + std::to_string(event.step) + " of " + std::to_string(event.total_steps) + ", " +
                loss_kind(event) + (*loss_kind(event) == 0 ? "loss " : " loss ") + short_text(event.loss) +
                loss_unit(event.of_samples),
            api::EventType::metrics};
}

Headline headline(const EvaluationEvent& event) {
    return {"step " + std::to_string(event.step) + ", held-out " + (event.of_samples ? "loss " : "cross entropy ") +
                short_text(event.loss) + loss_unit(event.of_samples),
            api::EventType::evaluation};
}

Headline headline(const FiguresEvent& event) {
    Headline line{"step " + std::to_string(event.step) + ", eval.command: " + event.problem, api::EventType::figures};
    if (!event.problem.empty()) {
        line.level = "warn";
        return line;
    }
    std::size_t shown = 0;
    for (const auto& [name, value] : event.figures) {
        if (shown == kFiguresShown) {
            line.message += ", …";
            break;
        }
        line.message += (shown++ == 0 ? "" : ", ") + name + " " + short_text(value);
    }
    return line;
}

Headline headline(const RolloutEvent& event) {
    return {"step " + std::to_string(event.step) + ", answers of the student after " + std::to_string(event.version) +
                (event.version == 1 ? " step" : " steps"),
            api::EventType::rollout};
}

Headline headline(const CheckpointEvent& event) {
    return {"checkpoint of step " + std::to_string(event.step) + " in " + event.folder, api::EventType::checkpoint};
}

Headline headline(const LogEvent& event) {
    const bool known = event.level == "warn" || event.level == "error";
    return {event.message, api::EventType::message, known ? event.level : "info"};
}

Headline headline(const WaitingEvent& event) {
    if (event.code.empty()) {
        return {event.message.empty() ? "no longer waiting" : event.message};
    }
    return {event.message, api::EventType::message, "warn"};
}

void shorten_progress(boost::json::object& progress) {
    progress.erase("stages");
    progress.erase("ranks");
    boost::json::object kept;
    const boost::json::object& fetch = progress.at("fetch").get_object();
    for (const char* name : kFetchFieldsKept) {
        kept[name] = fetch.at(name);
    }
    progress["fetch"] = std::move(kept);
}

api::JobEvent message_record(std::string message) {
    api::JobEvent record;
    record.message = std::move(message);
    return record;
}

api::JobEvent state_record(const api::Job& job) {
    api::JobEvent record;
    record.type = api::EventType::state;
    const bool waits = job.state == api::JobState::queued && job.status_reason && !job.status_reason->since.empty();
    record.level = job.state == api::JobState::failed ? "error" : waits ? "warn" : "info";
    record.message = std::string("job ") + api::to_string(job.state);
    record.data["state"] = api::to_string(job.state);
    if (job.status_reason && job.state != api::JobState::running) {
        record.message += ": " + job.status_reason->message;
        record.data["code"] = job.status_reason->code;
    }
    return record;
}

}  // namespace distilld
