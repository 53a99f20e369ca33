#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "api/job_types.hpp"
#include "base/describes.hpp"
#include "pipeline/core/event_fields.hpp"

/// The fields of the REST API's objects, by name (base/json_fields.hpp writes and reads their JSON).
namespace distilld::api {

/// A progress for clients: `percent` before its own fields (of `step` in `total_steps`, rounded to two decimals), and
/// without the fields that are only for metrics.
template <class Event>
struct WithPercent {
    Event event;
};

/// Written but not read: the value follows from other fields.
template <class T, class Visitor, class Value>
void derived_field(Visitor& v, const char* name, const Value& value) {
    if constexpr (std::is_const_v<T>) {
        v(name, value);
    }
}

/// A text that is null in JSON if it is empty.
template <class Visitor, class T>
void text_or_null_field(Visitor& v, const char* name, T& text) {
    std::optional<std::string> stated;
    if (!text.empty()) {
        stated = text;
    }
    v(name, stated);
    if constexpr (!std::is_const_v<T>) {
        text = stated.value_or(std::string());
    }
}

template <class Visitor, class T>
void progress_field(Visitor& v, const char* name, T& progress) {
    std::optional<WithPercent<ProgressEvent>> shown;
    if (progress) {
        shown.emplace(*progress);
    }
    v(name, shown);
    if constexpr (!std::is_const_v<T>) {
        progress.reset();
        if (shown) {
            progress = std::move(shown->event);
        }
    }
}

[[nodiscard]] inline double percent_of(std::uint64_t step, std::uint64_t total_steps) {
    const double percent =
        total_steps == 0 ? 0.0 : 100.0 * static_cast<double>(step) / static_cast<double>(total_steps);
    return std::round(percent * 100.0) / 100.0;
}

/// Passes on all fields except the histograms and gauges, which are for the metrics.
template <class Visitor>
struct WithoutMeasures {
    Visitor& visitor;
    template <class T>
    void operator()(const char* name, T& field) {
        if constexpr (!Describes<T, RunDurations> && !Describes<T, RunMeasures>) {
            visitor(name, field);
        }
    }
};

template <class Visitor, class Event>
void describe(Visitor& v, WithPercent<Event>& progress) {
    WithoutMeasures<Visitor> shown{v};
    describe(shown, progress.event);
}
template <class Visitor, class Event>
void describe(Visitor& v, const WithPercent<Event>& progress) {
    v("percent", percent_of(progress.event.step, progress.event.total_steps));
    WithoutMeasures<Visitor> shown{v};
    describe(shown, progress.event);
}

template <class Visitor, Describes<StatusReason> T>
void describe(Visitor& v, T& reason) {
    v("code", reason.code);
    v("message", reason.message);
    text_or_null_field(v, "since", reason.since);
}

template <class Visitor, Describes<JobCheckpoint> T>
void describe(Visitor& v, T& checkpoint) {
    v("step", checkpoint.step);
    v("folder", checkpoint.folder);
    v("seconds", checkpoint.seconds);
    text_or_null_field(v, "created_at", checkpoint.created_at);
    v("bytes", checkpoint.bytes);
}

/// Without the specs, which are JSON texts and not part of a job in a list.
template <class Visitor, Describes<Job> T>
void describe(Visitor& v, T& job) {
    v("id", job.id);
    derived_field<T>(v, "object", std::string("job"));
    v("kind", job.kind);
    v("name", job.name);
    text_or_null_field(v, "owner", job.owner);
    v("metadata", job.metadata);
    v("state", job.state);
    derived_field<T>(v, "terminal", is_terminal(job.state));
    v("cancel_requested", job.cancel_requested);
    text_or_null_field(v, "created_at", job.created_at);
    text_or_null_field(v, "started_at", job.started_at);
    text_or_null_field(v, "finished_at", job.finished_at);
    v("attempt", job.attempt);
    v("status_reason", job.status_reason);
    v("task", job.task);
    text_or_null_field(v, "task_of", job.task_of);
    v("tasks", job.tasks);
    v("priority", job.priority);
    v("queue_position", job.queue_position);
    v("max_concurrent", job.max_concurrent);
    v("slot", job.slot);
    v("cores", job.cores);
    text_or_null_field(v, "device", job.device);
    progress_field(v, "progress", job.progress);
    text_or_null_field(v, "dtype", job.dtype);
    v("eval_loss", job.eval_loss);
    v("eval_kl", job.eval_kl);
    v("eval_top1_agreement", job.eval_top1_agreement);
    v("eval_acceptance_rate", job.eval_acceptance_rate);
    v("exported_eval_loss", job.exported_eval_loss);
    v("output", job.output);
    text_or_null_field(v, "weights_sha256", job.weights_sha256);
    v("checkpoints", job.checkpoints);
    v("checkpoints_total", job.checkpoints_total);
}

template <class Visitor, Describes<JobEvent> T>
void describe(Visitor& v, T& event) {
    v("sequence", event.sequence);
    derived_field<T>(v, "object", std::string("job.event"));
    v("created_at", event.created_at);
    v("level", event.level);
    v("type", event.type);
    v("message", event.message);
    v("data", event.data);
}

}  // namespace distilld::api
