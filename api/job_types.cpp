#include "api/job_types.hpp"

#include <array>
#include <cstdio>
#include <ctime>

#include "api/job_fields.hpp"
#include "base/json_fields.hpp"
#include "base/json_text.hpp"

namespace distilld::api {
namespace {

namespace json = boost::json;

constexpr std::size_t kStoredDepthLimit = 64;

/// Parses the text as JSON, or returns it as a string if it is not JSON (a spec is stored as it was sent).
json::value raw_json(const std::string& text) {
    if (text.empty()) {
        return nullptr;
    }
    auto value = parse_json_text(text, kStoredDepthLimit);
    return value ? *std::move(value) : json::value(text);
}

/// The member `required` must exist.
template <class T>
Result<T> read_whole(const json::value& value, const char* what, const char* required) {
    const JsonPlace place{what, {}};
    if (!value.is_object()) {
        return invalid_input(place.message("is " + kind_name(value) + ", an object is expected"));
    }
    const json::object& object = value.get_object();
    if (!object.contains(required)) {
        return invalid_input(place.at(required).message("is missing"));
    }
    T read;
    if (auto done = read_fields(object, read, place); !done) {
        return done.error();
    }
    return read;
}

std::string text_of(const json::object& object, const char* name) {
    const auto* value = object.if_contains(name);
    return value == nullptr || value->is_null() ? std::string() : to_text(*value);
}

}  // namespace

std::string said_of(JobState state) {
    switch (state) {
        case JobState::queued:
            return "is waiting in the queue";
        case JobState::pausing:
            return "is about to pause";
        case JobState::succeeded:
        case JobState::failed:
            return std::string("has already ") + to_string(state);
        case JobState::cancelled:
            return "has already been cancelled";
        case JobState::running:
        case JobState::paused:
            break;
    }
    return std::string("is ") + to_string(state);
}

json::object to_json_object(const ProgressEvent& progress) {
    return write_fields(WithPercent<ProgressEvent>{progress});
}

Result<ProgressEvent> progress_from_json(const json::value& value) {
    return read_whole<ProgressEvent>(value, "progress", "step");
}

json::object to_json_object(const Job& job, bool with_specs) {
    json::object object = write_fields(job);
    if (with_specs) {
        object["spec"] = raw_json(job.spec_json);
        object["resolved_spec"] = raw_json(job.resolved_spec_json);
    }
    return object;
}

Result<Job> job_from_json(const json::value& value) {
    auto job = read_whole<Job>(value, "job", "state");
    if (job) {
        job->spec_json = text_of(value.get_object(), "spec");
        job->resolved_spec_json = text_of(value.get_object(), "resolved_spec");
    }
    return job;
}

json::object to_json_object(const JobEvent& event) {
    return write_fields(event);
}

Result<JobEvent> job_event_from_json(const json::value& value) {
    return read_whole<JobEvent>(value, "event", "type");
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

std::optional<std::chrono::system_clock::time_point> parse_rfc3339(const std::string& text) {
    std::tm parts{};
    int milliseconds = 0;
    int end = 0;
    const int read = std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ%n", &parts.tm_year, &parts.tm_mon,
                                 &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &milliseconds, &end);
    if (read != 7 || static_cast<std::size_t>(end) != text.size()) {
        return std::nullopt;
    }
    parts.tm_year -= 1900;
    parts.tm_mon -= 1;
    const auto time = std::chrono::system_clock::from_time_t(timegm(&parts)) + std::chrono::milliseconds(milliseconds);
    // Rejects impossible dates that are parsed all the same (a 31st of February).
    return rfc3339(time) == text ? std::optional(time) : std::nullopt;
}

}  // namespace distilld::api
