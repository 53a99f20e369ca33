#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/describes.hpp"
#include "base/time.hpp"
#include "base/unix_time.hpp"
#include "pipeline/core/stage.hpp"
#include "pipeline/core/worker_events.hpp"

/// What goes to the sinks: the events of a run, of those of its steps the figures alone, and the spans of its stages.
namespace distilld::sinks {

/// The figures of one optimizer step, as in ProgressEvent.
struct StepRecord {
    std::uint64_t step = 0;
    std::uint64_t total_steps = 0;
    double loss = 0;
    double kd_loss = 0;
    double ce_loss = 0;
    double grad_norm = 0;
    double learning_rate = 0;
    std::uint64_t tokens = 0;
    double tokens_per_second = 0;
    double stall_fraction = 0;
    double teacher_hidden_fraction = 0;
    double seconds_elapsed = 0;
    std::uint64_t nonfinite_steps = 0;
};

/// How the run came to its end. Nothing follows it.
struct EndRecord {
    enum class Status { finished, cancelled, failed };
    Status status = Status::finished;
    std::uint64_t step = 0;  ///< the last one
    std::string message;     ///< of a failure
    std::optional<double> eval_loss;
    std::optional<double> exported_eval_loss;
    std::string weights_sha256;
};

/// What a stage did, by the clock of the graph.
struct SpanRecord {
    Stage stage = Stage::plan;
    std::string name;
    Instant begin;
    Instant end;
    std::uint64_t number = 0;  ///< of the micro-batch; of the step from the optimizer on
};

using Record = std::variant<StartedEvent, StepRecord, EvaluationEvent, CheckpointEvent, EndRecord, SpanRecord>;

struct SinkItem {
    std::chrono::system_clock::time_point at;
    Record record;
};

/// What the sinks are told of an event; nothing of those that say nothing about the run's figures. `last_step` is what
/// a failure counts as its step.
[[nodiscard]] std::optional<Record> make_record(const WorkerEvent& event, std::uint64_t last_step);

/// started, step, evaluation, checkpoint, span; of an end finished, cancelled or failed.
[[nodiscard]] std::string_view kind_of(const Record& record);

[[nodiscard]] inline std::int64_t unix_milliseconds(std::chrono::system_clock::time_point at) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(at.time_since_epoch()).count();
}

template <class Visitor, Describes<StepRecord> T>
void describe(Visitor& v, T& r) {
    v("step", r.step);
    v("total_steps", r.total_steps);
    v("loss", r.loss);
    v("kd_loss", r.kd_loss);
    v("ce_loss", r.ce_loss);
    v("grad_norm", r.grad_norm);
    v("learning_rate", r.learning_rate);
    v("tokens", r.tokens);
    v("tokens_per_second", r.tokens_per_second);
    v("stall_fraction", r.stall_fraction);
    v("teacher_hidden_fraction", r.teacher_hidden_fraction);
    v("seconds_elapsed", r.seconds_elapsed);
    v("nonfinite_steps", r.nonfinite_steps);
}

template <class Visitor, Describes<EndRecord> T>
void describe(Visitor& v, T& r) {
    v("step", r.step);
    v("message", r.message);
    v("eval_loss", r.eval_loss);
    v("exported_eval_loss", r.exported_eval_loss);
    v("weights_sha256", r.weights_sha256);
}

}  // namespace distilld::sinks
