#include "server/worker/composition.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/job_spec_json.hpp"
#include "base/sha256.hpp"
#include "base/time.hpp"
#include "pipeline/async/run_on.hpp"
#include "pipeline/core/batch_plan.hpp"
#include "server/worker/resume_identity.hpp"

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
    event.dtype = to_string(run.spec.student.dtype);
    event.teacher = run.teacher_info.description;
    event.batch_size = run.spec.training.batch_size;
    event.micro_batches = run.spec.training.micro_batches;
    event.tokenizer = run.tokenizer;
    return event;
}

std::vector<TokenBatch> eval_batches(const PreparedRun& run) {
    std::vector<TokenBatch> batches;
    if (!run.eval) {
        return batches;
    }
    const std::uint64_t rows = evaluated_rows(run);
    for (std::uint64_t row = 0; row < rows;) {
        std::vector<std::uint64_t> indices;
        for (; row < rows && indices.size() < run.spec.training.batch_size; ++row) {
            indices.push_back(row);
        }
        batches.push_back(run.eval->batch(batches.size(), indices));
    }
    return batches;
}

TeacherStageOptions teacher_options(const PreparedRun& run) {
    TeacherStageOptions options;
    if (!run.spec.teacher) {
        return options;
    }
    const TeacherSpec& teacher = *run.spec.teacher;
    SchedulerOptions& scheduler = options.scheduler;
    scheduler.endpoints = static_cast<std::uint32_t>(teacher.endpoints.size());
    scheduler.limit.adaptive = teacher.max_concurrent.automatic;
    scheduler.limit.ceiling = teacher.max_concurrent.limit;
    scheduler.window = teacher.window;
    scheduler.window_bytes = teacher.window_bytes;
    scheduler.expected_bytes =
        run.teacher->answer_size(run.spec.training.batch_size, run.spec.dataset.sequence_length).held_bytes;
    scheduler.retry.max_retries = teacher.max_retries;
    scheduler.hedge.enabled = teacher.hedge;
    options.deadline = std::chrono::nanoseconds(from_seconds(teacher.timeout_secs));
    options.absent_endpoints = run.teacher_info.absent;
    return options;
}

GraphOptions graph_options(const PreparedRun& run) {
    GraphOptions options;
    options.training = run.spec.training;
    options.first_step = run.resumed.step;
    options.total_steps = run.total_steps;
    options.checkpoint_every = run.spec.checkpoint.every_steps;
    options.tokens_seen = run.resumed.tokens_seen;
    options.spec_json = make_run_identity(run.spec, run.dataset->hash());
    options.teacher = teacher_options(run);
    return options;
}

GraphHooks graph_hooks(const PreparedRun& run, EmitEvent emit) {
    GraphHooks hooks;
    hooks.on_event = std::move(emit);
    hooks.commit_checkpoint = [store = checkpoint_store(run.spec)](
                                  std::uint64_t step, const StudentSnapshot& snapshot) mutable -> Result<std::string> {
        const Result<std::filesystem::path> folder = store.commit(step, snapshot);
        if (!folder) {
            return folder.error();
        }
        return folder->string();
    };
    return hooks;
}

std::unique_ptr<TrainingGraph> make_graph(PreparedRun& run, GraphExecutors executors, EmitEvent emit,
                                          TraceWriter* trace) {
    const TrainingSpec& training = run.spec.training;
    auto batches = std::make_shared<BatchSource>(
        run.dataset, BatchPlan(run.dataset->row_count(), training.batch_size, training.seed), training.micro_batches);
    return make_training_graph(std::move(executors), *run.student, run.teacher.get(), std::move(batches),
                               eval_batches(run), graph_options(run), graph_hooks(run, std::move(emit)), trace);
}

/// The orders reach the graph while this lives.
class Attached {
  public:
    Attached(RunControl& control, TrainingGraph& graph) : control_(control) { control_.attach(graph); }
    ~Attached() { control_.detach(); }
    Attached(const Attached&) = delete;
    Attached& operator=(const Attached&) = delete;

  private:
    RunControl& control_;
};

/// Writes the model folder and returns the hash of its weights. Disk.
Result<std::string> export_model(const StudentSnapshot& snapshot, const std::filesystem::path& output,
                                 bool byte_tokenizer) {
    if (Result<void> written = snapshot.write_model(output); !written) {
        return written.error();
    }
    // Text that was read byte by byte needs the byte tokenizer's files beside the weights.
    if (byte_tokenizer) {
        if (Result<void> written = write_byte_tokenizer(output); !written) {
            return written.error();
        }
    }
    return sha256_file(output / "model.safetensors");
}

/// The held-out loss of the weights as the export rounds them; nothing when it does not, without a held-out set, or
/// when the run is told to stop meanwhile: the model is there by then.
asio::awaitable<std::optional<double>> exported_eval_loss(const PreparedRun& run, GraphExecutors executors,
                                                          const RunControl& control) {
    std::optional<double> loss;
    if (!run.eval) {
        co_return loss;
    }
    auto round = [&run] { return run.student->round_to_export(); };
    auto rounding = run_on(executors.compute, std::move(round));
    if (const bool rounded = co_await std::move(rounding); !rounded) {
        co_return loss;
    }
    EvalStats total;
    const std::vector<TokenBatch> batches = eval_batches(run);
    for (const TokenBatch& batch : batches) {
        if (control.cancelled()) {
            co_return loss;
        }
        auto work = [&run, &batch] { return run.student->evaluate(batch); };
        auto evaluating = run_on(executors.compute, std::move(work));
        const EvalStats stats = co_await std::move(evaluating);
        total.ce_sum += stats.ce_sum;
        total.target_tokens += stats.target_tokens;
    }
    if (total.target_tokens > 0) {
        loss = total.ce_sum / static_cast<double>(total.target_tokens);
    }
    co_return loss;
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
    emit(started_event(run));
    std::unique_ptr<TrainingGraph> graph = make_graph(run, executors, std::move(emit), trace.get());
    std::optional<Attached> attached;
    attached.emplace(control, *graph);
    auto running = graph->run();
    Result<GraphOutcome> outcome = co_await std::move(running);
    attached.reset();
    graph.reset();
    if (run.teacher) {
        run.teacher->close();
    }
    if (!outcome) {
        co_return outcome.error();
    }
    if (outcome->cancelled) {
        co_return WorkerEvent(CancelledEvent{outcome->steps_done, outcome->checkpoint});
    }
    const std::filesystem::path output(run.spec.output);
    std::function<Result<std::string>()> exporting = [&] {
        return export_model(*outcome->final_snapshot, output, run.exports_byte_tokenizer);
    };
    auto writing = run_on(executors.disk, std::move(exporting));
    Result<std::string> hash = co_await std::move(writing);
    if (!hash) {
        co_return hash.error();
    }
    auto evaluating = exported_eval_loss(run, executors, control);
    const std::optional<double> exported_loss = co_await std::move(evaluating);
    co_return WorkerEvent(FinishedEvent{outcome->last, output.string(), outcome->eval_loss, *hash, exported_loss});
}

}  // namespace distilld
