#include "api/job_types.hpp"

#include <array>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <limits>

#include "base/json_text.hpp"

namespace distilld::api {
namespace {

namespace json = boost::json;

constexpr std::size_t kStoredDepthLimit = 64;

constexpr std::array kStates{JobState::queued, JobState::running, JobState::succeeded, JobState::failed,
                             JobState::cancelled};
constexpr std::array kEventTypes{EventType::message, EventType::metrics, EventType::state, EventType::checkpoint,
                                 EventType::evaluation};

/// JSON has no NaN and no infinity: null stands for both.
json::value number(double value) {
    return std::isfinite(value) ? json::value(value) : json::value(nullptr);
}

json::value text_or_null(const std::string& text) {
    return text.empty() ? json::value(nullptr) : json::value(text);
}

/// The text as JSON; as a string when it is none (a spec is stored as it was sent).
json::value raw_json(const std::string& text) {
    if (text.empty()) {
        return nullptr;
    }
    auto value = parse_json_text(text, kStoredDepthLimit);
    return value ? *std::move(value) : json::value(text);
}

/// Reads members with defaults; the first member of a wrong type is the error.
class Reader {
  public:
    Reader(const json::value& value, std::string what) : object_(value.if_object()), what_(std::move(what)) {
        if (object_ == nullptr) {
            fail("is not an object");
        }
    }

    [[nodiscard]] const json::value* find(const char* name) const {
        const auto* value = object_ == nullptr ? nullptr : object_->if_contains(name);
        return value == nullptr || value->is_null() ? nullptr : value;
    }

    void text(const char* name, std::string& target) {
        if (const auto* value = find(name)) {
            if (!value->is_string()) {
                return fail_member(name);
            }
            target = value->get_string();
        }
    }
    void boolean(const char* name, bool& target) {
        if (const auto* value = find(name)) {
            if (!value->is_bool()) {
                return fail_member(name);
            }
            target = value->get_bool();
        }
    }
    /// null reads as NaN, an absent member leaves the default.
    void real(const char* name, double& target) {
        if (object_ == nullptr) {
            return;
        }
        const auto* value = object_->if_contains(name);
        if (value == nullptr) {
            return;
        }
        if (value->is_null()) {
            target = std::numeric_limits<double>::quiet_NaN();
        } else if (value->is_number()) {
            target = value->to_number<double>();
        } else {
            fail_member(name);
        }
    }
    template <class Integer>
    void integer(const char* name, Integer& target) {
        if (const auto* value = find(name)) {
            boost::system::error_code ec;
            const auto number = value->to_number<Integer>(ec);
            if (ec) {
                return fail_member(name);
            }
            target = number;
        }
    }
    void fail_member(const char* name) { fail(std::string("member '") + name + "' is not of the type expected"); }
    void fail(const std::string& what) {
        if (error_.empty()) {
            error_ = what_ + ": " + what;
        }
    }
    void merge(const Reader& other) {
        if (error_.empty()) {
            error_ = other.error_;
        }
    }
    [[nodiscard]] bool failed() const { return !error_.empty(); }
    [[nodiscard]] Error error() const { return invalid_input(error_); }

  private:
    const json::object* object_;
    std::string what_;
    std::string error_;
};

json::object stage_json(const StageTimes& stage) {
    return {{"stage", stage.stage},
            {"busy_seconds", number(stage.busy_seconds)},
            {"wait_input_seconds", number(stage.wait_input_seconds)},
            {"wait_output_seconds", number(stage.wait_output_seconds)}};
}

json::object fetch_json(const FetchCounters& fetch) {
    json::object failures;
    for (const auto& [kind, count] : fetch.failures) {
        failures[kind] = count;
    }
    json::object object;
    object["requests"] = fetch.requests;
    object["completed"] = fetch.completed;
    object["retries"] = fetch.retries;
    object["hedges"] = fetch.hedges;
    object["hedge_wins"] = fetch.hedge_wins;
    object["failures"] = std::move(failures);
    object["breaker_openings"] = fetch.breaker_openings;
    object["bytes_received"] = fetch.bytes_received;
    object["concurrency"] = fetch.concurrency;
    object["in_flight"] = fetch.in_flight;
    object["buffered"] = fetch.buffered;
    object["latency_p50_seconds"] = number(fetch.latency_p50_seconds);
    object["latency_p95_seconds"] = number(fetch.latency_p95_seconds);
    return object;
}

void read_fetch(Reader& outer, const json::value& value, FetchCounters& fetch) {
    Reader reader(value, "fetch");
    reader.integer("requests", fetch.requests);
    reader.integer("completed", fetch.completed);
    reader.integer("retries", fetch.retries);
    reader.integer("hedges", fetch.hedges);
    reader.integer("hedge_wins", fetch.hedge_wins);
    reader.integer("breaker_openings", fetch.breaker_openings);
    reader.integer("bytes_received", fetch.bytes_received);
    reader.integer("concurrency", fetch.concurrency);
    reader.integer("in_flight", fetch.in_flight);
    reader.integer("buffered", fetch.buffered);
    reader.real("latency_p50_seconds", fetch.latency_p50_seconds);
    reader.real("latency_p95_seconds", fetch.latency_p95_seconds);
    if (const auto* failures = reader.find("failures")) {
        if (!failures->is_object()) {
            reader.fail_member("failures");
        } else {
            for (const auto& member : failures->get_object()) {
                boost::system::error_code ec;
                const auto count = member.value().to_number<std::uint64_t>(ec);
                if (ec) {
                    reader.fail_member("failures");
                } else {
                    fetch.failures[std::string(member.key())] = count;
                }
            }
        }
    }
    outer.merge(reader);
}

void read_stages(Reader& outer, const json::value& value, std::vector<StageTimes>& stages) {
    if (!value.is_array()) {
        return outer.fail_member("stages");
    }
    for (const auto& item : value.get_array()) {
        Reader reader(item, "stages");
        StageTimes stage;
        reader.text("stage", stage.stage);
        reader.real("busy_seconds", stage.busy_seconds);
        reader.real("wait_input_seconds", stage.wait_input_seconds);
        reader.real("wait_output_seconds", stage.wait_output_seconds);
        outer.merge(reader);
        stages.push_back(std::move(stage));
    }
}

void read_checkpoints(Reader& outer, const json::value& value, std::vector<JobCheckpoint>& checkpoints) {
    if (!value.is_array()) {
        return outer.fail_member("checkpoints");
    }
    for (const auto& item : value.get_array()) {
        Reader reader(item, "checkpoints");
        JobCheckpoint checkpoint;
        reader.integer("step", checkpoint.step);
        reader.text("folder", checkpoint.folder);
        reader.real("seconds", checkpoint.seconds);
        reader.text("created_at", checkpoint.created_at);
        outer.merge(reader);
        checkpoints.push_back(std::move(checkpoint));
    }
}

}  // namespace

const char* to_string(JobState state) noexcept {
    switch (state) {
        case JobState::queued:
            return "queued";
        case JobState::running:
            return "running";
        case JobState::succeeded:
            return "succeeded";
        case JobState::failed:
            return "failed";
        case JobState::cancelled:
            return "cancelled";
    }
    return "unknown";
}

std::optional<JobState> job_state_from_string(std::string_view text) noexcept {
    for (const auto state : kStates) {
        if (text == to_string(state)) {
            return state;
        }
    }
    return std::nullopt;
}

const char* to_string(EventType type) noexcept {
    switch (type) {
        case EventType::message:
            return "message";
        case EventType::metrics:
            return "metrics";
        case EventType::state:
            return "state";
        case EventType::checkpoint:
            return "checkpoint";
        case EventType::evaluation:
            return "evaluation";
    }
    return "unknown";
}

std::optional<EventType> event_type_from_string(std::string_view text) noexcept {
    for (const auto type : kEventTypes) {
        if (text == to_string(type)) {
            return type;
        }
    }
    return std::nullopt;
}

json::object to_json_object(const ProgressEvent& progress) {
    json::array stages;
    for (const auto& stage : progress.stages) {
        stages.push_back(stage_json(stage));
    }
    const double percent = progress.total_steps == 0
                               ? 0.0
                               : 100.0 * static_cast<double>(progress.step) / static_cast<double>(progress.total_steps);
    json::object object;
    object["step"] = progress.step;
    object["total_steps"] = progress.total_steps;
    object["percent"] = std::round(percent * 100.0) / 100.0;
    object["seconds_remaining"] = number(progress.seconds_remaining);
    object["seconds_elapsed"] = number(progress.seconds_elapsed);
    object["tokens"] = progress.tokens;
    object["tokens_per_second"] = number(progress.tokens_per_second);
    object["loss"] = number(progress.loss);
    object["kd_loss"] = number(progress.kd_loss);
    object["ce_loss"] = number(progress.ce_loss);
    object["grad_norm"] = number(progress.grad_norm);
    object["learning_rate"] = number(progress.learning_rate);
    object["stall_fraction"] = number(progress.stall_fraction);
    object["teacher_hidden_fraction"] = number(progress.teacher_hidden_fraction);
    object["bottleneck"] = progress.bottleneck;
    object["stages"] = std::move(stages);
    object["fetch"] = fetch_json(progress.fetch);
    object["nonfinite_steps"] = progress.nonfinite_steps;
    return object;
}

Result<ProgressEvent> progress_from_json(const json::value& value) {
    Reader reader(value, "progress");
    ProgressEvent progress;
    reader.integer("step", progress.step);
    reader.integer("total_steps", progress.total_steps);
    reader.real("seconds_remaining", progress.seconds_remaining);
    reader.real("seconds_elapsed", progress.seconds_elapsed);
    reader.integer("tokens", progress.tokens);
    reader.real("tokens_per_second", progress.tokens_per_second);
    reader.real("loss", progress.loss);
    reader.real("kd_loss", progress.kd_loss);
    reader.real("ce_loss", progress.ce_loss);
    reader.real("grad_norm", progress.grad_norm);
    reader.real("learning_rate", progress.learning_rate);
    reader.real("stall_fraction", progress.stall_fraction);
    reader.real("teacher_hidden_fraction", progress.teacher_hidden_fraction);
    reader.text("bottleneck", progress.bottleneck);
    reader.integer("nonfinite_steps", progress.nonfinite_steps);
    if (const auto* stages = reader.find("stages")) {
        read_stages(reader, *stages, progress.stages);
    }
    if (const auto* fetch = reader.find("fetch")) {
        read_fetch(reader, *fetch, progress.fetch);
    }
    if (reader.failed()) {
        return reader.error();
    }
    return progress;
}

json::object to_json_object(const Job& job, bool with_specs) {
    json::array checkpoints;
    for (const auto& checkpoint : job.checkpoints) {
        checkpoints.push_back(json::object{{"step", checkpoint.step},
                                           {"folder", checkpoint.folder},
                                           {"seconds", number(checkpoint.seconds)},
                                           {"created_at", text_or_null(checkpoint.created_at)}});
    }
    json::object object;
    object["id"] = job.id;
    object["object"] = "job";
    object["name"] = job.name;
    object["state"] = to_string(job.state);
    object["terminal"] = is_terminal(job.state);
    object["cancel_requested"] = job.cancel_requested;
    object["created_at"] = text_or_null(job.created_at);
    object["started_at"] = text_or_null(job.started_at);
    object["finished_at"] = text_or_null(job.finished_at);
    object["status_reason"] = nullptr;
    if (job.status_reason) {
        object["status_reason"] =
            json::object{{"code", job.status_reason->code}, {"message", job.status_reason->message}};
    }
    object["queue_position"] = nullptr;
    if (job.queue_position) {
        object["queue_position"] = *job.queue_position;
    }
    object["progress"] = nullptr;
    if (job.progress) {
        object["progress"] = to_json_object(*job.progress);
    }
    object["eval_loss"] = job.eval_loss ? number(*job.eval_loss) : json::value(nullptr);
    object["output"] = job.output;
    object["weights_sha256"] = text_or_null(job.weights_sha256);
    object["checkpoints"] = std::move(checkpoints);
    if (with_specs) {
        object["spec"] = raw_json(job.spec_json);
        object["resolved_spec"] = raw_json(job.resolved_spec_json);
    }
    return object;
}

Result<Job> job_from_json(const json::value& value) {
    Reader reader(value, "job");
    Job job;
    std::string state;
    reader.text("id", job.id);
    reader.text("name", job.name);
    reader.text("state", state);
    reader.boolean("cancel_requested", job.cancel_requested);
    reader.text("created_at", job.created_at);
    reader.text("started_at", job.started_at);
    reader.text("finished_at", job.finished_at);
    reader.text("output", job.output);
    reader.text("weights_sha256", job.weights_sha256);
    if (const auto known = job_state_from_string(state)) {
        job.state = *known;
    } else {
        reader.fail("unknown state '" + state + "'");
    }
    if (const auto* reason = reader.find("status_reason")) {
        Reader inner(*reason, "status_reason");
        StatusReason result;
        inner.text("code", result.code);
        inner.text("message", result.message);
        reader.merge(inner);
        job.status_reason = std::move(result);
    }
    if (reader.find("queue_position") != nullptr) {
        reader.integer("queue_position", job.queue_position.emplace());
    }
    if (reader.find("eval_loss") != nullptr) {
        reader.real("eval_loss", job.eval_loss.emplace());
    }
    if (const auto* checkpoints = reader.find("checkpoints")) {
        read_checkpoints(reader, *checkpoints, job.checkpoints);
    }
    if (const auto* progress = reader.find("progress")) {
        auto parsed = progress_from_json(*progress);
        if (!parsed) {
            return parsed.error();
        }
        job.progress = *std::move(parsed);
    }
    if (const auto* spec = reader.find("spec")) {
        job.spec_json = json::serialize(*spec);
    }
    if (const auto* spec = reader.find("resolved_spec")) {
        job.resolved_spec_json = json::serialize(*spec);
    }
    if (reader.failed()) {
        return reader.error();
    }
    return job;
}

json::object to_json_object(const JobEvent& event) {
    json::object object;
    object["sequence"] = event.sequence;
    object["object"] = "job.event";
    object["created_at"] = event.created_at;
    object["level"] = event.level;
    object["type"] = to_string(event.type);
    object["message"] = event.message;
    object["data"] = event.data;
    return object;
}

Result<JobEvent> job_event_from_json(const json::value& value) {
    Reader reader(value, "event");
    JobEvent event;
    std::string type;
    reader.integer("sequence", event.sequence);
    reader.text("created_at", event.created_at);
    reader.text("level", event.level);
    reader.text("type", type);
    reader.text("message", event.message);
    if (const auto known = event_type_from_string(type)) {
        event.type = *known;
    } else {
        reader.fail("unknown type '" + type + "'");
    }
    if (const auto* data = reader.find("data")) {
        if (data->is_object()) {
            event.data = data->get_object();
        } else {
            reader.fail_member("data");
        }
    }
    if (reader.failed()) {
        return reader.error();
    }
    return event;
}

std::string rfc3339(std::chrono::system_clock::time_point time) {
    const auto milliseconds = std::chrono::floor<std::chrono::milliseconds>(time);
    const auto seconds = std::chrono::floor<std::chrono::seconds>(milliseconds);
    const std::time_t whole = std::chrono::system_clock::to_time_t(seconds);
    std::tm parts{};
    gmtime_r(&whole, &parts);
    std::array<char, 80> text{};
    std::snprintf(text.data(), text.size(), "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", parts.tm_year + 1900,
                  parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                  static_cast<int>((milliseconds - seconds).count()));
    return text.data();
}

}  // namespace distilld::api
