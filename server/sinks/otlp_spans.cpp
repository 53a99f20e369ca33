#include "server/sinks/otlp_spans.hpp"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <string_view>
#include <utility>

#include "base/hex.hpp"
#include "base/random.hpp"
#include "distilld_version.hpp"

namespace distilld::sinks {

namespace json = boost::json;
using std::chrono::nanoseconds;

namespace {

constexpr std::uint64_t kWholeSteps = 1000;  // from the first step on
constexpr int kInternal = 1;
constexpr int kClient = 3;
constexpr int kStatusOk = 1;
constexpr int kStatusError = 2;
constexpr std::uint64_t kStepSalt = 0x5354'4550;

/// A hash of both; never 0, which OTLP takes for "none".
std::uint64_t mixed(std::uint64_t a, std::uint64_t b) {
    return std::max<std::uint64_t>(SplitMix64(SplitMix64(a).next() ^ b).next(), 1);
}

json::object text_attribute(std::string_view key, std::string_view value) {
    return {{"key", key}, {"value", json::object{{"stringValue", value}}}};
}
json::object number_attribute(std::string_view key, std::uint64_t value) {
    return {{"key", key}, {"value", json::object{{"intValue", std::to_string(value)}}}};
}

/// The stage, followed by the span's own name.
std::string full_name(const SpanRecord& record) {
    const std::string stage(stage_name(record.stage));
    return stage == record.name ? stage : stage + "." + record.name;
}

bool is_request(const SpanRecord& record) {
    return record.stage == Stage::teacher;
}
/// The name of a failed request is the kind of its failure.
bool has_failed(const SpanRecord& record) {
    return is_request(record) && record.name != "request" && record.name != "retry" && record.name != "hedge";
}

}  // namespace

bool is_sampled(std::uint64_t index) {
    if (index < kWholeSteps) {
        return true;
    }
    return index % std::bit_floor(index / (kWholeSteps / 2)) == 0;
}

json::array SpanTree::spans_of(const std::vector<SinkItem>& items) {
    json::array spans;
    for (const SinkItem& item : items) {
        add(item, spans);
    }
    return spans;
}

void SpanTree::sent() {
    std::erase_if(steps_, [](const auto& step) { return step.second.finished; });
}

void SpanTree::add(const SinkItem& item, json::array& spans) {
    const nanoseconds at = std::chrono::duration_cast<nanoseconds>(item.at.time_since_epoch());
    if (began_ == nanoseconds(0)) {
        began_ = at;
    }
    if (const auto* span = std::get_if<SpanRecord>(&item.record)) {
        add_span(*span, spans);
    } else if (const auto* end = std::get_if<EndRecord>(&item.record)) {
        for (const auto& [index, step] : steps_) {
            if (!step.finished) {
                add_step(index, step, spans);
            }
        }
        add_job(*end, at, spans);
    }
}

void SpanTree::add_span(const SpanRecord& record, json::array& spans) {
    const bool at_step_border = record.stage >= Stage::recorder;
    const bool of_the_job = at_step_border || record.name == "update";
    const bool of_a_step = at_step_border || record.stage == Stage::optimizer;
    const std::uint64_t index = of_a_step ? record.number : options_.steps.step_of(record.number);
    const std::uint64_t behind_first = index - std::min(index, options_.first_step);
    if (!at_step_border && !is_sampled(behind_first)) {
        return;
    }
    const std::uint64_t id =
        mixed(options_.trace_seed[0] ^ static_cast<std::uint64_t>(record.begin.time_since_epoch().count()),
              mixed(static_cast<std::uint64_t>(record.stage), record.number));
    json::object made = span(
        id, of_the_job ? root_id() : step_id(index), has_failed(record) ? "teacher.request" : full_name(record),
        record.begin.time_since_epoch() + options_.unix_offset, record.end.time_since_epoch() + options_.unix_offset);
    made["kind"] = is_request(record) ? kClient : kInternal;
    made["attributes"] = json::array{text_attribute("distilld.stage", stage_name(record.stage)),
                                     number_attribute(of_a_step ? "distilld.step" : "distilld.micro_batch",
                                                      record.number + (record.name == "finish_step" ? 1 : 0))};
    if (has_failed(record)) {
        made["status"] = json::object{{"code", kStatusError}, {"message", record.name}};
    }
    spans.push_back(std::move(made));
    if (of_the_job) {
        return;
    }
    const auto [entry, is_new] = steps_.try_emplace(index, Step{record.begin, record.end});
    Step& step = entry->second;
    step.begin = std::min(step.begin, record.begin);
    step.end = std::max(step.end, record.end);
    if (record.stage == Stage::optimizer) {
        step.finished = true;
        add_step(index, step, spans);
    }
}

void SpanTree::add_step(std::uint64_t index, const Step& step, json::array& spans) const {
    json::object made = span(step_id(index), root_id(), "step", step.begin.time_since_epoch() + options_.unix_offset,
                             step.end.time_since_epoch() + options_.unix_offset);
    made["attributes"] = json::array{number_attribute("distilld.step", index + 1)};
    spans.push_back(std::move(made));
}

void SpanTree::add_job(const EndRecord& end, nanoseconds at, json::array& spans) const {
    json::object made = span(root_id(), 0, "job", began_, at);
    made["attributes"] =
        json::array{number_attribute("distilld.first_step", options_.first_step),
                    number_attribute("distilld.step", end.step), text_attribute("distilld.outcome", kind_of(end))};
    if (end.status == EndRecord::Status::finished) {
        made["status"] = json::object{{"code", kStatusOk}};
    } else if (end.status == EndRecord::Status::failed) {
        made["status"] = json::object{{"code", kStatusError}, {"message", end.message}};
    }
    spans.push_back(std::move(made));
}

json::object SpanTree::span(std::uint64_t id, std::uint64_t parent, std::string name, nanoseconds begin,
                            nanoseconds end) const {
    json::object made{{"traceId", hex(options_.trace_seed[0]) + hex(options_.trace_seed[1])}, {"spanId", hex(id)}};
    if (parent != 0) {
        made["parentSpanId"] = hex(parent);
    }
    made["name"] = std::move(name);
    made["kind"] = kInternal;
    made["startTimeUnixNano"] = std::to_string(begin.count());
    made["endTimeUnixNano"] = std::to_string(end.count());
    return made;
}

std::uint64_t SpanTree::root_id() const {
    return mixed(options_.trace_seed[0], options_.trace_seed[1]);
}
std::uint64_t SpanTree::step_id(std::uint64_t index) const {
    return mixed(root_id() ^ kStepSalt, index);
}

json::object otlp_request(json::array spans, const std::string& job_name, const std::string& job_id) {
    json::array resource{text_attribute("service.name", "distilld"), text_attribute("service.version", kVersion),
                         number_attribute("process.pid", static_cast<std::uint64_t>(::getpid())),
                         text_attribute("distilld.job.name", job_name)};
    if (!job_id.empty()) {
        resource.push_back(text_attribute("distilld.job.id", job_id));
    }
    json::object scope{{"scope", json::object{{"name", "distilld"}, {"version", kVersion}}},
                       {"spans", std::move(spans)}};
    json::object of_the_resource{{"resource", json::object{{"attributes", std::move(resource)}}},
                                 {"scopeSpans", json::array{std::move(scope)}}};
    return {{"resourceSpans", json::array{std::move(of_the_resource)}}};
}

}  // namespace distilld::sinks
