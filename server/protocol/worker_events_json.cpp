#include "server/protocol/worker_events_json.hpp"

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <boost/json/value_to.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <type_traits>

namespace distilld {
namespace {

namespace json = boost::json;

// Each event type lists its fields once, in visit(); writing and reading are two visitors of that list.

template <class Visitor, class T>
void visit(Visitor& v, T& e)
    requires std::is_same_v<std::remove_const_t<T>, StageTimes>
{
    v("stage", e.stage);
    v("busy_seconds", e.busy_seconds);
    v("wait_input_seconds", e.wait_input_seconds);
    v("wait_output_seconds", e.wait_output_seconds);
}

template <class Visitor, class T>
void visit(Visitor& v, T& e)
    requires std::is_same_v<std::remove_const_t<T>, FetchCounters>
{
    v("requests", e.requests);
    v("completed", e.completed);
    v("retries", e.retries);
    v("hedges", e.hedges);
    v("hedge_wins", e.hedge_wins);
    v("failures", e.failures);
    v("breaker_openings", e.breaker_openings);
    v("bytes_received", e.bytes_received);
    v("concurrency", e.concurrency);
    v("in_flight", e.in_flight);
    v("buffered", e.buffered);
    v("latency_p50_seconds", e.latency_p50_seconds);
    v("latency_p95_seconds", e.latency_p95_seconds);
}

template <class Visitor, class T>
void visit(Visitor& v, T& e)
    requires std::is_same_v<std::remove_const_t<T>, ProgressEvent>
{
    v("step", e.step);
    v("total_steps", e.total_steps);
    v("loss", e.loss);
    v("kd_loss", e.kd_loss);
    v("ce_loss", e.ce_loss);
    v("grad_norm", e.grad_norm);
    v("learning_rate", e.learning_rate);
    v("tokens", e.tokens);
    v("tokens_per_second", e.tokens_per_second);
    v("stall_fraction", e.stall_fraction);
    v("seconds_elapsed", e.seconds_elapsed);
    v("seconds_remaining", e.seconds_remaining);
    v("teacher_hidden_fraction", e.teacher_hidden_fraction);
    v("stages", e.stages);
    v("bottleneck", e.bottleneck);
    v("fetch", e.fetch);
    v("nonfinite_steps", e.nonfinite_steps);
}

template <class Visitor, class T>
void visit(Visitor& v, T& e)
    requires std::is_same_v<std::remove_const_t<T>, StartedEvent>
{
    v("total_steps", e.total_steps);
    v("first_step", e.first_step);
    v("parameters", e.parameters);
    v("dataset_rows", e.dataset_rows);
    v("dataset_tokens", e.dataset_tokens);
    v("dtype", e.dtype);
    v("teacher", e.teacher);
    v("batch_size", e.batch_size);
    v("micro_batches", e.micro_batches);
}

template <class Visitor, class T>
void visit(Visitor& v, T& e)
    requires std::is_same_v<std::remove_const_t<T>, EvaluationEvent>
{
    v("step", e.step);
    v("loss", e.loss);
    v("tokens", e.tokens);
}

template <class Visitor, class T>
void visit(Visitor& v, T& e)
    requires std::is_same_v<std::remove_const_t<T>, CheckpointEvent>
{
    v("step", e.step);
    v("folder", e.folder);
    v("seconds", e.seconds);
}

template <class Visitor, class T>
void visit(Visitor& v, T& e)
    requires std::is_same_v<std::remove_const_t<T>, LogEvent>
{
    v("level", e.level);
    v("message", e.message);
}

template <class Visitor, class T>
void visit(Visitor& v, T& e)
    requires std::is_same_v<std::remove_const_t<T>, FinishedEvent>
{
    v("last", e.last);
    v("output", e.output);
    v("eval_loss", e.eval_loss);
    v("weights_sha256", e.weights_sha256);
}

template <class Visitor, class T>
void visit(Visitor& v, T& e)
    requires std::is_same_v<std::remove_const_t<T>, CancelledEvent>
{
    v("step", e.step);
    v("checkpoint", e.checkpoint);
}

template <class Visitor, class T>
void visit(Visitor& v, T& e)
    requires std::is_same_v<std::remove_const_t<T>, FailedEvent>
{
    v("kind", e.kind);
    v("message", e.message);
}

template <class T>
json::object to_object(const T& event);

json::value to_value(const std::string& text) {
    return json::value(text);
}
json::value to_value(std::uint64_t number) {
    return json::value(number);
}
json::value to_value(std::uint32_t number) {
    return json::value(number);
}
json::value to_value(double number) {
    return std::isfinite(number) ? json::value(number) : json::value(nullptr);
}
json::value to_value(const std::optional<double>& number) {
    return number ? to_value(*number) : json::value(nullptr);
}
json::value to_value(const std::map<std::string, std::uint64_t>& counts) {
    json::object object;
    for (const auto& [name, count] : counts) {
        object[name] = count;
    }
    return object;
}
json::value to_value(const std::vector<StageTimes>& stages) {
    json::array array;
    for (const auto& stage : stages) {
        array.push_back(to_object(stage));
    }
    return array;
}
json::value to_value(const FetchCounters& counters) {
    return to_object(counters);
}
json::value to_value(const ProgressEvent& progress) {
    return to_object(progress);
}

struct Writer {
    json::object& object;
    template <class T>
    void operator()(const char* name, const T& field) {
        object[name] = to_value(field);
    }
};

template <class T>
json::object to_object(const T& event) {
    json::object object;
    Writer writer{object};
    visit(writer, event);
    return object;
}

/// Reads into the fields; keeps the first error.
struct Reader {
    const json::object& object;
    std::string path;
    std::string error;

    template <class T>
    void operator()(const char* name, T& field) {
        if (!error.empty()) {
            return;
        }
        const json::value* value = object.if_contains(name);
        if (value == nullptr) {
            return;
        }
        read(*value, path + name, field);
    }

    void wrong(const std::string& name, const char* expected) { error = "'" + name + "' is not " + expected; }

    void read(const json::value& value, const std::string& name, std::string& field) {
        const json::string* text = value.if_string();
        if (text == nullptr) {
            return wrong(name, "a string");
        }
        field.assign(text->data(), text->size());
    }
    template <class Integer>
        requires std::is_unsigned_v<Integer>
    void read(const json::value& value, const std::string& name, Integer& field) {
        boost::system::error_code ec;
        const auto number = value.to_number<Integer>(ec);
        if (ec) {
            return wrong(name, "a whole number in range");
        }
        field = number;
    }
    void read(const json::value& value, const std::string& name, double& field) {
        if (value.is_null()) {
            field = std::numeric_limits<double>::quiet_NaN();
            return;
        }
        if (!value.is_number()) {
            return wrong(name, "a number");
        }
        field = value.to_number<double>();
    }
    void read(const json::value& value, const std::string& name, std::optional<double>& field) {
        if (value.is_null()) {
            field.reset();
            return;
        }
        double number = 0;
        read(value, name, number);
        field = number;
    }
    void read(const json::value& value, const std::string& name, std::map<std::string, std::uint64_t>& field) {
        const json::object* counts = value.if_object();
        if (counts == nullptr) {
            return wrong(name, "an object");
        }
        for (const auto& [key, count] : *counts) {
            read(count, name + "." + std::string(key), field[std::string(key)]);
        }
    }
    void read(const json::value& value, const std::string& name, std::vector<StageTimes>& field) {
        const json::array* array = value.if_array();
        if (array == nullptr) {
            return wrong(name, "an array");
        }
        for (const auto& element : *array) {
            read_object(element, name, field.emplace_back());
            if (!error.empty()) {
                return;
            }
        }
    }
    void read(const json::value& value, const std::string& name, FetchCounters& field) {
        read_object(value, name, field);
    }
    void read(const json::value& value, const std::string& name, ProgressEvent& field) {
        read_object(value, name, field);
    }
    template <class T>
    void read_object(const json::value& value, const std::string& name, T& field) {
        const json::object* nested = value.if_object();
        if (nested == nullptr) {
            return wrong(name, "an object");
        }
        Reader reader{*nested, name + ".", {}};
        visit(reader, field);
        error = std::move(reader.error);
    }
};

}  // namespace

json::object event_json(const ProgressEvent& event) {
    return to_object(event);
}
json::object event_json(const StartedEvent& event) {
    return to_object(event);
}
json::object event_json(const EvaluationEvent& event) {
    return to_object(event);
}
json::object event_json(const CheckpointEvent& event) {
    return to_object(event);
}
json::object event_json(const LogEvent& event) {
    return to_object(event);
}
json::object event_json(const FinishedEvent& event) {
    return to_object(event);
}
json::object event_json(const CancelledEvent& event) {
    return to_object(event);
}
json::object event_json(const FailedEvent& event) {
    return to_object(event);
}

template <class Event>
Result<Event> event_from_json(const json::object& object) {
    Event event;
    Reader reader{object, {}, {}};
    visit(reader, event);
    if (!reader.error.empty()) {
        return invalid_input(std::move(reader.error));
    }
    return event;
}

template Result<ProgressEvent> event_from_json(const json::object&);
template Result<StartedEvent> event_from_json(const json::object&);
template Result<EvaluationEvent> event_from_json(const json::object&);
template Result<CheckpointEvent> event_from_json(const json::object&);
template Result<LogEvent> event_from_json(const json::object&);
template Result<FinishedEvent> event_from_json(const json::object&);
template Result<CancelledEvent> event_from_json(const json::object&);
template Result<FailedEvent> event_from_json(const json::object&);

}  // namespace distilld
