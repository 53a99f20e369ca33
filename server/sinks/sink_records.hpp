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

/// Records for the sinks: the events of a run, the figures of its steps, and the spans of its stages.
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

/// The end of the run. Nothing follows it.
struct EndRecord {
    enum class Status { finished, cancelled, failed };
    Status status = Status::finished;
    std::uint64_t step = 0;  ///< the last step
    std::string message;     ///< set after a failure
    std::optional<double> eval_loss;
    std::optional<double> exported_eval_loss;
    std::string weights_sha256;
};

/// An activity of a stage, by the graph's clock.
struct SpanRecord {
    Stage stage = Stage::plan;
    std::string name;
    Instant begin;
    Instant end;
    std::uint64_t number = 0;  ///< of the micro-batch; of the step from the optimizer on
};

using Record = std::variant<StartedEvent, StepRecord, EvaluationEvent, FiguresEvent, RolloutEvent, CheckpointEvent,
                            EndRecord, SpanRecord>;

struct SinkItem {
    std::chrono::system_clock::time_point at;
    Record record;
};

/// The record of an event; nullopt if it has no metrics of the run. `last_step` is the step of a failure.
[[nodiscard]] std::optional<Record> make_record(const WorkerEvent& event, std::uint64_t last_step);

/// started, step, evaluation, figures, rollout, checkpoint or span; for an end finished, cancelled or failed.
[[nodiscard]] std::string_view kind_of(const Record& record);

[[nodiscard]] inline std::int64_t unix_milliseconds(std::chrono::system_clock::time_point at) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(at.time_since_epoch()).count();
}

BOOST_DESCRIBE_STRUCT(StepRecord, (),
                      (step, total_steps, loss, kd_loss, ce_loss, grad_norm, learning_rate, tokens, tokens_per_second,
                       stall_fraction, teacher_hidden_fraction, seconds_elapsed, nonfinite_steps))

BOOST_DESCRIBE_STRUCT(EndRecord, (), (step, message, eval_loss, exported_eval_loss, weights_sha256))

}  // namespace distilld::sinks
