#include "server/protocol/worker_protocol.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <optional>
#include <stdexcept>

#include "server/protocol/worker_events_json.hpp"

namespace distilld {
namespace {

namespace json = boost::json;

std::string line_of(const char* type, const json::object& fields) {
    json::object object;
    object["type"] = type;
    for (const auto& field : fields) {
        object[field.key()] = field.value();
    }
    std::string line = json::serialize(object);
    line += '\n';
    return line;
}

const char* type_of(const StartedEvent&) {
    return "started";
}
const char* type_of(const ProgressEvent&) {
    return "progress";
}
const char* type_of(const EvaluationEvent&) {
    return "evaluation";
}
const char* type_of(const CheckpointEvent&) {
    return "checkpoint";
}
const char* type_of(const LogEvent&) {
    return "log";
}
const char* type_of(const FinishedEvent&) {
    return "finished";
}
const char* type_of(const CancelledEvent&) {
    return "cancelled";
}
const char* type_of(const FailedEvent&) {
    return "failed";
}

struct EncodeUp {
    std::string operator()(const HelloMessage& hello) const {
        return line_of("hello", json::object{{"version", hello.version}, {"pid", hello.pid}});
    }
    template <class Event>
    std::string operator()(const Event& event) const {
        return line_of(type_of(event), event_json(event));
    }
};

/// Digits must survive: the spec inside is what the run is made from.
json::parse_options exact_numbers() {
    json::parse_options options;
    options.numbers = json::number_precision::precise;
    return options;
}

struct EncodeDown {
    std::string operator()(const WorkerStart& start) const {
        boost::system::error_code ec;
        json::value spec = json::parse(start.spec_json, ec, {}, exact_numbers());
        if (ec || !spec.is_object()) {
            throw std::invalid_argument("the spec of a worker is no JSON object");
        }
        json::object object;
        object["version"] = kWorkerProtocolVersion;
        object["spec"] = std::move(spec);
        object["resume"] = start.resume;
        object["trace_file"] = start.trace_file;
        return line_of("start", object);
    }
    std::string operator()(const CancelCommand&) const { return line_of("cancel", {}); }
    std::string operator()(const CheckpointCommand&) const { return line_of("checkpoint", {}); }
    std::string operator()(const SetLimitCommand& command) const {
        return line_of("set_limit", json::object{{"max_concurrent", command.max_concurrent}});
    }
};

Error protocol_error(const std::string& what) {
    return Error{ErrorKind::internal, "worker protocol: " + what};
}

/// An object and its "type".
struct Envelope {
    json::object object;
    std::string type;
};

Result<Envelope> open(std::string_view line) {
    if (line.size() > kWorkerMessageLimit) {
        return protocol_error("the message is too long");
    }
    boost::system::error_code ec;
    json::value value = json::parse(json::string_view(line.data(), line.size()), ec, {}, exact_numbers());
    if (ec) {
        return protocol_error("the line is not JSON (" + ec.message() + "): " + std::string(line.substr(0, 80)));
    }
    if (!value.is_object()) {
        return protocol_error("the message is not an object");
    }
    Envelope envelope;
    envelope.object = std::move(value.get_object());
    const json::value* type = envelope.object.if_contains("type");
    if (type == nullptr || !type->is_string()) {
        return protocol_error("the message has no 'type'");
    }
    envelope.type = std::string(type->get_string());
    return envelope;
}

Result<std::uint64_t> number_field(const json::object& object, const char* name, std::uint64_t largest) {
    const json::value* value = object.if_contains(name);
    boost::system::error_code ec;
    std::uint64_t number = 0;
    if (value != nullptr) {
        number = value->to_number<std::uint64_t>(ec);
    }
    if (value == nullptr || ec || number > largest) {
        return protocol_error("'" + std::string(name) + "' is not a whole number in range");
    }
    return number;
}

template <class Event>
Result<UpMessage> event_of(const json::object& object) {
    auto event = event_from_json<Event>(object);
    if (!event) {
        return protocol_error(event.error().message);
    }
    return UpMessage(std::move(*event));
}

Result<DownMessage> decode_start(const json::object& object) {
    const auto version = number_field(object, "version", UINT32_MAX);
    if (!version) {
        return version.error();
    }
    if (*version != kWorkerProtocolVersion) {
        return protocol_error("version " + std::to_string(*version) + ", not " +
                              std::to_string(kWorkerProtocolVersion) +
                              ": distilld and distilld-worker are of different builds");
    }
    WorkerStart start;
    const json::value* spec = object.if_contains("spec");
    if (spec == nullptr || !spec->is_object()) {
        return protocol_error("'spec' is not an object");
    }
    start.spec_json = json::serialize(*spec);
    if (const json::value* resume = object.if_contains("resume")) {
        if (!resume->is_bool()) {
            return protocol_error("'resume' is not a boolean");
        }
        start.resume = resume->get_bool();
    }
    if (const json::value* trace = object.if_contains("trace_file")) {
        if (!trace->is_string()) {
            return protocol_error("'trace_file' is not a string");
        }
        start.trace_file = std::string(trace->get_string());
    }
    return DownMessage(std::move(start));
}

}  // namespace

std::string encode(const DownMessage& message) {
    return std::visit(EncodeDown{}, message);
}

std::string encode(const UpMessage& message) {
    return std::visit(EncodeUp{}, message);
}

Result<DownMessage> decode_down(std::string_view line) {
    const auto envelope = open(line);
    if (!envelope) {
        return envelope.error();
    }
    if (envelope->type == "start") {
        return decode_start(envelope->object);
    }
    if (envelope->type == "cancel") {
        return DownMessage(CancelCommand{});
    }
    if (envelope->type == "checkpoint") {
        return DownMessage(CheckpointCommand{});
    }
    if (envelope->type == "set_limit") {
        const auto limit = number_field(envelope->object, "max_concurrent", UINT32_MAX);
        if (!limit) {
            return limit.error();
        }
        return DownMessage(SetLimitCommand{static_cast<std::uint32_t>(*limit)});
    }
    return protocol_error("unknown message type '" + envelope->type + "'");
}

Result<UpMessage> decode_up(std::string_view line) {
    const auto envelope = open(line);
    if (!envelope) {
        return envelope.error();
    }
    const json::object& object = envelope->object;
    const std::string& type = envelope->type;
    if (type == "hello") {
        const auto version = number_field(object, "version", UINT32_MAX);
        if (!version) {
            return version.error();
        }
        if (*version != kWorkerProtocolVersion) {
            return protocol_error("the worker speaks version " + std::to_string(*version) + ", not " +
                                  std::to_string(kWorkerProtocolVersion) +
                                  ": distilld and distilld-worker are of different builds");
        }
        const auto pid = number_field(object, "pid", INT64_MAX);
        if (!pid) {
            return pid.error();
        }
        return UpMessage(HelloMessage{static_cast<std::uint32_t>(*version), static_cast<std::int64_t>(*pid)});
    }
    if (type == "started") {
        return event_of<StartedEvent>(object);
    }
    if (type == "progress") {
        return event_of<ProgressEvent>(object);
    }
    if (type == "evaluation") {
        return event_of<EvaluationEvent>(object);
    }
    if (type == "checkpoint") {
        return event_of<CheckpointEvent>(object);
    }
    if (type == "log") {
        return event_of<LogEvent>(object);
    }
    if (type == "finished") {
        return event_of<FinishedEvent>(object);
    }
    if (type == "cancelled") {
        return event_of<CancelledEvent>(object);
    }
    if (type == "failed") {
        return event_of<FailedEvent>(object);
    }
    return protocol_error("unknown message type '" + type + "'");
}

}  // namespace distilld
