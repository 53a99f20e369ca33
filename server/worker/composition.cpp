#include "server/worker/composition.hpp"

#include <algorithm>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/job_spec_json.hpp"
#include "base/files/file_rule.hpp"
#include "base/files/files.hpp"
#include "base/scope_exit.hpp"
#include "base/this_machine.hpp"
#include "pipeline/async/abort.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/graph/evaluation.hpp"
#include "pipeline/graph/space_wait.hpp"
#include "server/worker/eval/eval_program.hpp"
#include "server/worker/export/export_files.hpp"
#include "server/worker/gives_up.hpp"
#include "server/worker/held_out_rows.hpp"
#include "server/worker/machine/disk_space.hpp"
#include "server/worker/machine/usage_meter.hpp"
#include "server/worker/ranks/rank_run.hpp"
#include "server/worker/rollout/prompt_dataset.hpp"
#include "server/worker/run_plan.hpp"
#include "server/worker/starting_point.hpp"
#include "server/worker/teacher/job_teachers.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

StartedEvent started_event(const PreparedRun& run) {
    StartedEvent event;
    event.total_steps = run.total_steps;
    event.first_step = run.resumed.step;
    event.parameters = run.student->parameter_count();
    event.dataset_rows = run.dataset->row_count();
    event.dataset_tokens = run.dataset->token_count();
    event.dataset_tokens_read = run.dataset->tokens_read();
    event.dtype = to_string(run.spec.student.dtype);
    event.teacher = description_of(run.teachers);
    event.batch_size = run.spec.training.batch_size;
    event.micro_batches = run.spec.training.micro_batches;
    event.replicas = run.spec.training.parallel ? run.spec.training.replicas : 1;
    event.ranks = run.ranks == nullptr ? 1 : run.ranks->count();
    event.tokenizer = run.tokenizer;
    event.of_samples = run.spec.dataset.format == DataFormat::tensors;
    return event;
}

/// Last figures for a run without a step left: those of the run that did the last step, without its counts of the
/// teacher and the stages, since this run has counted nothing.
ProgressEvent last_figures(const ProgressEvent& last) {
    ProgressEvent figures;
    figures.tokens = last.tokens;
    figures.padding_tokens = last.padding_tokens;
    figures.tokens_per_second = last.tokens_per_second;
    figures.seconds_elapsed = last.seconds_elapsed;
    figures.loss = last.loss;
    figures.kd_loss = last.kd_loss;
    figures.ce_loss = last.ce_loss;
    figures.grad_norm = last.grad_norm;
    figures.learning_rate = last.learning_rate;
    return figures;
}

GraphOptions graph_options(PreparedRun& run, std::uint32_t decode_threads) {
    GraphOptions options;
    options.training = run.spec.training;
    options.first_step = run.resumed.step;
    options.total_steps = run.total_steps;
    options.checkpoint = run.spec.checkpoint;
    options.tokens_seen = run.resumed.tokens_seen;
    options.spec_json = identity_of(run);
    options.resumed = last_figures(run.resumed.last);
    options.resumed_from = run.resumed_from;
    options.teachers = graph_teachers(run.teachers, run.spec, decode_threads);
    share_teachers(run, options.teachers);
    if (run.rollout) {
        options.rollout = rollout_options(run, decode_threads);
    }
    options.program_every_steps = run.spec.eval.every_steps;
    options.host = run.ranks == nullptr ? std::string() : host_name();
    return options;
}

/// With the chosen device: "cuda" means the first one.
UsageSources usage_sources(const JobSpec& spec) {
    UsageSources sources;
    sources.device = spec.student.device;
    Result<std::unique_ptr<models::DeviceMemory>> memory = models::make_device_memory(spec.student.device);
    if (memory) {
        sources.memory = std::move(*memory);
    }
    const std::filesystem::path output(spec.output);
    const std::filesystem::path checkpoints = checkpoint_store(spec).folder();
    sources.folders.emplace_back("output", output);
    if (!is_below(checkpoints, output)) {
        sources.folders.emplace_back("checkpoints", checkpoints);
    }
    return sources;
}

/// Also when it is cancelled, the program's folder is removed after its end.
asio::awaitable<void> judge_and_remove(EvalSpec eval, std::uint64_t step, std::filesystem::path folder,
                                       asio::any_io_executor disk, EmitEvent emit) {
    const ScopeExit ended([&] { asio::post(disk, [folder] { static_cast<void>(remove_tree(folder)); }); });
    emit(co_await judge_student(std::move(eval), step, folder));
}

EvalProgramHooks program_hooks(PreparedRun& run, const GraphExecutors& executors, EmitEvent emit) {
    EvalProgramHooks hooks;
    if (!run.spec.eval.command.empty()) {
        hooks.write = [&run](const StudentSnapshot& snapshot) { return write_program_export(snapshot, run); };
        hooks.run = [&run, disk = executors.disk, emit = std::move(emit)](std::uint64_t step) {
            return judge_and_remove(run.spec.eval, step, program_export_folder(run), disk, emit);
        };
    }
    return hooks;
}

GraphHooks graph_hooks(PreparedRun& run, GraphExecutors executors, EmitEvent emit) {
    GraphHooks hooks;
    hooks.on_event = emit;
    if (run.follows()) {
        return hooks;
    }
    hooks.program = program_hooks(run, executors, std::move(emit));
    const auto usage = std::make_shared<UsageMeter>(executors.disk, usage_sources(run.spec));  // hooks are copied
    hooks.usage = [usage] { return usage->newest(); };
    hooks.sample = run.samples;
    hooks.commit_checkpoint = [sinks = run.sinks.get(), store = checkpoint_store(run.spec, run.checkpoint_fence()),
                               needed = checkpoint_bytes(run.student->parameter_count())](
                                  std::uint64_t step, const StudentSnapshot& snapshot) mutable -> Result<std::string> {
        sinks->settle();
        const Result<std::filesystem::path> folder = store.commit(step, snapshot);
        if (!folder) {
            return explain_full_disk(folder.error(), store.folder(), "a checkpoint", needed);
        }
        return folder->string();
    };
    return hooks;
}

std::unique_ptr<TrainingGraph> make_graph(PreparedRun& run, GraphExecutors executors, EmitEvent emit,
                                          TraceWriter* trace) {
    const TrainingSpec& training = run.spec.training;
    BatchPlan plan = batch_plan(run);
    const auto slice = own_slice(run);
    auto rows =
        run.rollout ? with_room_for_answers(run.dataset, run.spec.rollout->max_tokens, run.rollout->plan) : run.dataset;
    auto batches = run.mixed
                       ? std::make_shared<BatchSource>(run.mixed, std::move(plan), training.micro_batches, slice)
                       : std::make_shared<BatchSource>(std::move(rows), std::move(plan), training.micro_batches, slice);
    GraphHooks hooks = graph_hooks(run, executors, std::move(emit));
    GraphOptions options = graph_options(run, executors.decode_threads);
    EvaluationSet eval = run.follows() ? EvaluationSet() : evaluation_set(run, executors.decode_threads);
    return make_training_graph(std::move(executors), *run.student, std::move(batches), std::move(eval),
                               std::move(options), std::move(hooks), trace);
}

/// Orders reach the graph while it runs.
asio::awaitable<Result<GraphOutcome>> run_attached(TrainingGraph& graph, RunControl& control) {
    control.attach(graph);
    const ScopeExit ended([&control] { control.detach(); });
    co_return co_await graph.run();
}

/// Waits for space while the disk is full. An error of kind disk_full: `control` was cancelled meanwhile.
asio::awaitable<Result<std::string>> export_model(std::shared_ptr<const StudentSnapshot> snapshot, PreparedRun& run,
                                                  GraphExecutors executors, RunControl& control, EmitEvent emit) {
    SpaceWait space(executors.io, std::move(emit));
    const GivesUp gives_up(control, space);
    std::function<Result<std::string>()> attempt = [&run, snapshot]() -> Result<std::string> {
        Result<std::string> written = write_export(*snapshot, run);
        if (!written) {
            return explain_full_disk(written.error(), run.spec.output, "the model",
                                     export_bytes(run.student->parameter_count()));
        }
        return written;
    };
    Result<std::string> hash = co_await space.perform(executors.disk, std::move(attempt));
    co_return hash;
}

/// The held-out loss of the exported, rounded weights; nullopt if the export does not round, without a held-out set, or
/// if the run is told to stop meanwhile (the model is already written).
asio::awaitable<std::optional<double>> exported_eval_loss(const PreparedRun& run, GraphExecutors executors,
                                                          const RunControl& control) {
    std::optional<double> loss;
    if (!run.eval) {
        co_return loss;
    }
    auto round = [&run] { return run.student->round_to_export(); };
    if (const bool rounded = co_await run_on(executors.compute, std::move(round)); !rounded) {
        co_return loss;
    }
    const EvaluationSet rows = held_out_rows(run);
    auto evaluating = evaluate_batches(*run.student, rows, 0, executors, [&control] { return control.cancelled(); });
    const std::optional<EvalStats> total = co_await std::move(evaluating);
    if (total) {
        loss = mean_loss(*total);
    }
    co_return loss;
}

/// Runs eval.command on the exported model; a run that is told to stop does not wait for it.
asio::awaitable<void> judge_export(const PreparedRun& run, asio::any_io_executor io, RunControl& control,
                                   EmitEvent emit) {
    if (run.spec.eval.command.empty() || control.cancelled()) {
        co_return;
    }
    auto judging = judge_student(run.spec.eval, run.total_steps, run.spec.output);
    try {
        auto waiting = asio::co_spawn(io, std::move(judging),
                                      asio::bind_cancellation_slot(control.cancel_slot(), asio::use_awaitable));
        emit(co_await std::move(waiting));
    } catch (...) {
        if (!is_abort(std::current_exception())) {
            throw;
        }
    }
}

void tell_of_padding(double share, const EmitEvent& emit) {
    if (share >= 0.0005) {  // 0.0% otherwise
        const std::string percent = std::to_string(100 * share);
        emit(LogEvent{"info", "padding was " + percent.substr(0, percent.find('.') + 2) +
                                  "% of the positions that the student computed"});
    }
}

/// Keeps what the teacher has written.
asio::awaitable<void> end_teacher(TeacherSource& teacher) {
    teacher.close();
    co_await teacher.settle();
}

}  // namespace

asio::awaitable<Result<WorkerEvent>> train_and_export(PreparedRun& run, GraphExecutors executors, RunControl& control,
                                                      EmitEvent emit, std::string trace_file) {
    std::unique_ptr<TraceWriter> trace;
    if (!trace_file.empty()) {
        Result<std::unique_ptr<TraceWriter>> made = make_trace_writer(trace_file);
        if (!made) {
            co_return made.error();
        }
        trace = std::move(*made);
    }
    std::unique_ptr<TraceWriter> spans;
    if (run.sinks && run.sinks->takes_spans()) {
        spans = sinks::make_span_feed(*run.sinks, trace.get());
    }
    emit(started_event(run));
    std::unique_ptr<TrainingGraph> graph = make_graph(run, executors, emit, spans ? spans.get() : trace.get());
    Result<GraphOutcome> outcome = co_await run_attached(*graph, control);
    graph.reset();
    if (!run.spec.eval.command.empty() && !run.follows()) {  // written, but cancelled before the program began
        auto remove = [&run] { static_cast<void>(remove_tree(program_export_folder(run))); };
        co_await run_on(executors.disk, std::move(remove));
    }
    for (const std::vector<ConnectedTeacher>* teachers : {&run.of_held_out, &run.teachers}) {
        for (const ConnectedTeacher& teacher : *teachers) {
            co_await end_teacher(*teacher.source);
        }
    }
    if (run.rollout) {
        co_await end_rollouts(run, executors.disk, outcome && !outcome->cancelled);
    }
    co_await end_host_teachers(run);  // no rank needs more answers: all have ended the last step
    if (!outcome) {
        co_return outcome.error();
    }
    tell_of_padding(outcome->padding_share, emit);
    if (outcome->cancelled) {
        co_return WorkerEvent(CancelledEvent{outcome->steps_done, outcome->checkpoint});
    }
    if (run.follows()) {
        co_return WorkerEvent(FinishedEvent{outcome->last, run.spec.output, {}, {}, {}});
    }
    Result<std::string> hash = co_await export_model(outcome->final_snapshot, run, executors, control, emit);
    if (!hash && hash.error().kind == ErrorKind::disk_full) {
        emit(LogEvent{"warn", "the export was abandoned: " + hash.error().message});
        co_return WorkerEvent(CancelledEvent{outcome->steps_done, outcome->checkpoint});
    }
    if (!hash) {
        co_return hash.error();
    }
    const std::optional<double> exported_loss = co_await exported_eval_loss(run, executors, control);
    co_await judge_export(run, executors.io, control, emit);
    co_return WorkerEvent(FinishedEvent{outcome->last, run.spec.output, outcome->eval_loss, *hash, exported_loss});
}

}  // namespace distilld
