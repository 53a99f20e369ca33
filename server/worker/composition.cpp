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

constexpr std::uint64_t kMaxEvalRows = 4096;

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
    return event;
}

std::vector<TokenBatch> eval_batches(const PreparedRun& run) {
    std::vector<TokenBatch> batches;
    if (!run.eval) {
        return batches;
    }
    const std::uint64_t rows = std::min(run.eval->row_count(), kMaxEvalRows);
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
    const AnswerSize expected =
        run.teacher->answer_size(run.spec.training.batch_size, run.spec.dataset.sequence_length);
    scheduler.window.size = teacher.window;
    scheduler.window.max_bytes = teacher.window_bytes;
    scheduler.window.expected = {expected.held_bytes, expected.max_wire_bytes.value_or(0)};
    scheduler.retry.max_retries = teacher.max_retries;
    scheduler.retry.patience = from_seconds(teacher.patience_secs);
    scheduler.breaker.max_hold = from_seconds(teacher.max_retry_after_secs);
    scheduler.hedge.enabled = teacher.hedge;
    options.deadline = std::chrono::nanoseconds(from_seconds(teacher.timeout_secs));
    options.absent_endpoints = run.teacher_info.absent;
    options.absent_endpoints.insert(options.absent_endpoints.end(), run.teacher_info.refused.begin(),
                                    run.teacher_info.refused.end());
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
    co_return WorkerEvent(FinishedEvent{outcome->last, output.string(), outcome->eval_loss, *hash});
}

}  // namespace distilld
