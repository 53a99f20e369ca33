#include "server/sinks/sink_records.hpp"

#include <array>
#include <utility>

namespace distilld::sinks {

namespace {

StepRecord figures_of(const ProgressEvent& event) {
    StepRecord record;
    record.step = event.step;
    record.total_steps = event.total_steps;
    record.loss = event.loss;
    record.kd_loss = event.kd_loss;
    record.ce_loss = event.ce_loss;
    record.grad_norm = event.grad_norm;
    record.learning_rate = event.learning_rate;
    record.tokens = event.tokens;
    record.tokens_per_second = event.tokens_per_second;
    record.stall_fraction = event.stall_fraction;
    record.teacher_hidden_fraction = event.teacher_hidden_fraction;
    record.seconds_elapsed = event.seconds_elapsed;
    record.nonfinite_steps = event.nonfinite_steps;
    return record;
}

struct Maker {
    std::uint64_t last_step;

    std::optional<Record> operator()(const StartedEvent& event) const { return Record(event); }
    std::optional<Record> operator()(const ProgressEvent& event) const { return Record(figures_of(event)); }
    std::optional<Record> operator()(const EvaluationEvent& event) const { return Record(event); }
    std::optional<Record> operator()(const FiguresEvent& event) const { return Record(event); }
    std::optional<Record> operator()(const RolloutEvent& event) const { return Record(event); }
    std::optional<Record> operator()(const CheckpointEvent& event) const { return Record(event); }
    std::optional<Record> operator()(const FinishedEvent& event) const {
        EndRecord record;
        record.step = event.last.step;
        record.eval_loss = event.eval_loss;
        record.exported_eval_loss = event.exported_eval_loss;
        record.weights_sha256 = event.weights_sha256;
        return Record(std::move(record));
    }
    std::optional<Record> operator()(const CancelledEvent& event) const {
        EndRecord record;
        record.status = EndRecord::Status::cancelled;
        record.step = event.step;
        return Record(std::move(record));
    }
    std::optional<Record> operator()(const FailedEvent& event) const {
        EndRecord record;
        record.status = EndRecord::Status::failed;
        record.step = last_step;
        record.message = event.kind + ": " + event.message;
        return Record(std::move(record));
    }
    std::optional<Record> operator()(const LogEvent& /*event*/) const { return std::nullopt; }
    std::optional<Record> operator()(const WaitingEvent& /*event*/) const { return std::nullopt; }
};

constexpr std::array<std::string_view, 3> kEnds = {"finished", "cancelled", "failed"};

struct Kind {
    std::string_view operator()(const StartedEvent& /*record*/) const { return "started"; }
    std::string_view operator()(const StepRecord& /*record*/) const { return "step"; }
    std::string_view operator()(const EvaluationEvent& /*record*/) const { return "evaluation"; }
    std::string_view operator()(const FiguresEvent& /*record*/) const { return "figures"; }
    std::string_view operator()(const RolloutEvent& /*record*/) const { return "rollout"; }
    std::string_view operator()(const CheckpointEvent& /*record*/) const { return "checkpoint"; }
    std::string_view operator()(const EndRecord& record) const {
        return kEnds[static_cast<std::size_t>(record.status)];
    }
    std::string_view operator()(const SpanRecord& /*record*/) const { return "span"; }
};

}  // namespace

std::optional<Record> make_record(const WorkerEvent& event, std::uint64_t last_step) {
    return std::visit(Maker{last_step}, event);
}

std::string_view kind_of(const Record& record) {
    return std::visit(Kind{}, record);
}

}  // namespace distilld::sinks
