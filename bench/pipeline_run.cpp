#include "bench/pipeline_run.hpp"

#include <sys/resource.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <exception>
#include <filesystem>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <utility>

#include "pipeline/teacher/remote_teacher.hpp"

namespace distilld::bench {

namespace asio = boost::asio;

namespace {

/// Rows of ids that name their micro-batch, so that the teacher gives each its own latency.
class NumberedDataset final : public Dataset {
  public:
    explicit NumberedDataset(std::uint32_t columns) : columns_(columns) {}
    std::uint64_t row_count() const override { return 1; }
    std::uint64_t token_count() const override { return columns_; }
    const std::string& hash() const override { return hash_; }
    TokenBatch batch(std::uint64_t number, const std::vector<std::uint64_t>& rows) const override {
        TokenBatch made;
        made.number = number;
        made.rows = static_cast<std::uint32_t>(rows.size());
        made.columns = columns_;
        made.input_ids.assign(rows.size() * columns_, 1);
        const std::vector<std::int32_t> ids = ids_of_number(number);
        std::copy(ids.begin(), ids.end(), made.input_ids.begin());
        made.labels.assign(rows.size() * columns_, 1);
        made.lengths.assign(rows.size(), static_cast<std::int32_t>(columns_));
        made.row_ids = rows;
        made.target_tokens = rows.size() * columns_;
        return made;
    }
    std::uint64_t target_tokens(std::uint64_t) const override { return columns_; }

  private:
    std::uint32_t columns_;
    std::string hash_;
};

/// Answers at once with targets that were fetched before: the pipeline without its teacher.
class PreloadedTeacher final : public TeacherSource {
  public:
    explicit PreloadedTeacher(TeacherTargets targets) : targets_(std::move(targets)) {}
    std::size_t endpoint_count() const override { return 1; }
    const std::string& endpoint_name(std::size_t) const override { return name_; }
    asio::awaitable<Result<TeacherInfo>> probe(std::uint32_t) override { co_return TeacherInfo{}; }
    AnswerSize answer_size(std::uint32_t, std::uint32_t) const override { return {0, targets_.held_bytes}; }
    asio::awaitable<FetchResult<EncodedAnswer>> fetch(std::size_t, std::shared_ptr<const TokenBatch>,
                                                      std::chrono::nanoseconds) override {
        co_return targets_;
    }
    void close() override {}

  private:
    TeacherTargets targets_;
    std::string name_ = "preloaded";
};

std::uint32_t thread_count() {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return static_cast<std::uint32_t>(std::distance(begin(tasks), end(tasks)));
}

GraphOptions graph_options(const PipelineOptions& options, TeacherSource& teacher, bool parallel, std::uint64_t steps) {
    GraphOptions graph;
    graph.training.parallel = parallel;
    graph.training.micro_batches = options.micro_batches;
    graph.training.batch_size = options.batch_size;
    graph.training.logging_steps = steps;
    graph.total_steps = steps;
    SchedulerOptions& scheduler = graph.teachers.emplace_back(GraphTeacher{"", &teacher}).options.scheduler;
    scheduler.endpoints = options.scenario.endpoints;
    scheduler.limit.ceiling = options.scenario.concurrency;
    scheduler.limit.adaptive = options.scenario.adaptive;
    const AnswerSize expected = teacher.answer_size(options.batch_size, options.sequence_length);
    scheduler.window.size = options.scenario.window;
    scheduler.window.max_bytes = 1ULL << 30U;
    scheduler.window.expected = {expected.held_bytes, expected.max_wire_bytes.value_or(0)};
    scheduler.window.decoders = options.decode_threads;
    scheduler.window.decode_bytes = expected.decode_bytes;
    scheduler.hedge.enabled = options.scenario.hedge;
    scheduler.retry.base = std::chrono::milliseconds(10);
    return graph;
}

TeacherSpec teacher_spec(const PipelineOptions& options, const LoopbackTeacher& teacher) {
    TeacherSpec spec;
    spec.endpoints = teacher.urls();
    spec.top_k = options.top_k;
    return spec;
}

}  // namespace

std::uint64_t peak_resident_bytes() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::uint64_t>(usage.ru_maxrss) * 1024U;
}

LoopbackTeacherOptions loopback_options(const PipelineOptions& options, std::uint64_t count) {
    LoopbackTeacherOptions teacher;
    teacher.latencies = first_latencies(options.scenario, count);
    teacher.failure_rate = options.scenario.failure_rate;
    teacher.seed = options.scenario.seed;
    teacher.endpoints = options.scenario.endpoints;
    teacher.slow_factor = options.scenario.slow_factor;
    teacher.fault = options.scenario.fault;
    teacher.json_answers = options.json_answers;
    return teacher;
}

/// One run of the graph; what is pointed to outlives its coroutine.
struct GraphRun {
    const PipelineOptions* options;
    Student* student;
    TeacherSource* remote;
    std::shared_ptr<NumberedDataset> dataset;
    GraphExecutors executors;
    bool live;
    bool parallel;
    std::uint64_t steps;
    TraceWriter* trace;
    std::uint32_t threads = 0;  ///< of this process, at the last event
    std::optional<Result<GraphOutcome>> outcome;
};

asio::awaitable<void> train(GraphRun* run) {
    const PipelineOptions& options = *run->options;
    Result<TeacherInfo> probed = co_await run->remote->probe(run->student->vocabulary_size());
    if (!probed) {
        throw std::runtime_error(probed.error().message);
    }
    std::unique_ptr<PreloadedTeacher> preloaded;
    if (!run->live) {
        auto tokens = std::make_shared<const TokenBatch>(
            run->dataset->batch(0, std::vector<std::uint64_t>(options.batch_size, 0)));
        FetchResult<EncodedAnswer> answer = co_await run->remote->fetch(0, tokens, std::chrono::seconds(60));
        if (!answer) {
            throw std::runtime_error(answer.error().message);
        }
        FetchResult<TeacherTargets> targets = answer->decode();
        if (!targets) {
            throw std::runtime_error(targets.error().message);
        }
        preloaded = std::make_unique<PreloadedTeacher>(std::move(*targets));
    }
    TeacherSource* source = run->live ? run->remote : static_cast<TeacherSource*>(preloaded.get());
    auto batches =
        std::make_shared<BatchSource>(run->dataset, BatchPlan(1, options.batch_size, 1), options.micro_batches);
    GraphHooks hooks;
    hooks.on_event = [run](const WorkerEvent&) { run->threads = thread_count(); };
    hooks.commit_checkpoint = [](std::uint64_t, const StudentSnapshot&) { return Result<std::string>(std::string()); };
    auto graph = make_training_graph(run->executors, *run->student, batches, {},
                                     graph_options(options, *source, run->parallel, run->steps), hooks, run->trace);
    run->outcome = co_await graph->run();
    run->remote->close();
}

PipelineRun run_graph(const PipelineOptions& options, Student& student, asio::any_io_executor compute,
                      const LoopbackTeacher& teacher, Answers answers, bool parallel, std::uint64_t steps) {
    asio::io_context io(1);
    asio::thread_pool staging(1);
    asio::thread_pool disk(1);
    asio::thread_pool decode(options.decode_threads);
    const bool live = answers == Answers::live;
    std::unique_ptr<TeacherSource> remote =
        make_remote_teacher(io.get_executor(), decode.get_executor(), teacher_spec(options, teacher)).value();
    std::unique_ptr<TraceWriter> trace;
    if (live && parallel && !options.trace_file.empty()) {
        trace = make_trace_writer(options.trace_file).value();
    }

    PipelineRun run;
    const GraphExecutors executors{io.get_executor(),      compute,
                                   staging.get_executor(), disk.get_executor(),
                                   decode.get_executor(),  options.decode_threads};
    auto dataset = std::make_shared<NumberedDataset>(options.sequence_length);
    GraphRun graph{&options, &student, remote.get(), dataset, executors, live, parallel, steps, trace.get(), 0, {}};
    std::exception_ptr failed;
    asio::co_spawn(io, train(&graph), [&failed](const std::exception_ptr& thrown) { failed = thrown; });
    io.run();
    staging.join();
    disk.join();
    decode.join();
    if (failed) {
        std::rethrow_exception(failed);
    }
    if (!*graph.outcome) {
        throw std::runtime_error(graph.outcome->error().message);
    }
    run.threads = graph.threads;
    run.outcome = std::move(**graph.outcome);
    run.wall = from_seconds(run.outcome.last.seconds_elapsed);
    run.fill = from_seconds(run.outcome.fill_seconds);
    return run;
}

}  // namespace distilld::bench
