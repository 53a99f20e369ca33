// distilld-bench pipeline: the whole stage graph on the wall clock, with a real HTTP teacher on loopback.
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <algorithm>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <utility>

#include "bench/loopback_teacher.hpp"
#include "bench/scenario.hpp"
#include "bench/timed_student.hpp"
#include "bench/virtual_pipeline.hpp"
#include "pipeline/graph/stage_clock.hpp"
#include "pipeline/graph/training_graph.hpp"
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
        made.input_ids[0] = static_cast<std::int32_t>(number % kIdBase);
        made.input_ids[1] = static_cast<std::int32_t>(number / kIdBase);
        made.labels.assign(rows.size() * columns_, 1);
        made.lengths.assign(rows.size(), static_cast<std::int32_t>(columns_));
        made.target_tokens = rows.size() * columns_;
        return made;
    }
    std::int32_t largest_id() const override { return kIdBase - 1; }

  private:
    std::uint32_t columns_;
    std::string hash_;
};

struct Measured {
    Nanos wall = 0;  // from the start of the graph to the end of its last step
    double student = 0;
    GraphOutcome outcome;
};

Measured measure(const PipelineOptions& options, const LoopbackTeacher& teacher, bool parallel, std::uint64_t steps) {
    asio::io_context io(1);
    asio::thread_pool compute(1);
    asio::thread_pool staging(1);
    asio::thread_pool disk(1);
    TeacherSpec spec;
    spec.endpoints = {teacher.url()};
    spec.top_k = options.top_k;
    std::unique_ptr<TeacherSource> source = make_remote_teacher(io.get_executor(), staging.get_executor(), spec).value();
    TimedStudent student(std::chrono::nanoseconds(options.scenario.student()), options.busy_student);

    GraphOptions graph;
    graph.training.parallel = parallel;
    graph.training.micro_batches = options.micro_batches;
    graph.training.batch_size = options.batch_size;
    graph.training.logging_steps = steps;
    graph.total_steps = steps;
    SchedulerOptions& scheduler = graph.teacher.scheduler;
    scheduler.limit.ceiling = options.scenario.concurrency;
    scheduler.limit.adaptive = options.scenario.adaptive;
    scheduler.window = options.scenario.window;
    scheduler.hedge.enabled = options.scenario.hedge;
    scheduler.retry.base = 10 * kMillisecond;
    GraphHooks hooks;
    hooks.commit_checkpoint = [](std::uint64_t, const StudentSnapshot&) -> Result<std::string> { return std::string(); };
    auto batches = std::make_shared<BatchSource>(std::make_shared<NumberedDataset>(options.sequence_length),
                                                 BatchPlan(1, options.batch_size, 1), options.micro_batches);
    std::unique_ptr<TraceWriter> trace;
    if (parallel && !options.trace_file.empty()) trace = make_trace_writer(options.trace_file).value();
    const GraphExecutors executors{io.get_executor(), compute.get_executor(), staging.get_executor(),
                                   disk.get_executor()};
    auto running = make_training_graph(executors, student, source.get(), batches, {}, graph, hooks, trace.get());
    std::optional<Result<GraphOutcome>> outcome;
    std::exception_ptr failed;
    Measured measured;
    const auto work = [&]() -> asio::awaitable<void> {
        Result<TeacherInfo> probed = co_await source->probe(student.vocabulary_size());
        if (!probed) throw std::runtime_error(probed.error().message);
        outcome = co_await running->run();
        source->close();
    };
    asio::co_spawn(io, work(), [&failed](const std::exception_ptr& thrown) { failed = thrown; });
    io.run();
    compute.join();
    staging.join();
    disk.join();
    if (failed) std::rethrow_exception(failed);
    if (!*outcome) throw std::runtime_error(outcome->error().message);
    measured.outcome = std::move(**outcome);
    measured.wall = static_cast<Nanos>(measured.outcome.last.seconds_elapsed * 1e9);
    measured.student = student.mean_nanoseconds();
    return measured;
}

}  // namespace

int run_pipeline(const PipelineOptions& options) {
    try {
        const Scenario& scenario = options.scenario;
        const std::uint64_t count = options.steps * options.micro_batches;
        LoopbackTeacherOptions teacher_options;
        teacher_options.latencies = first_latencies(scenario, count);
        teacher_options.failure_rate = scenario.failure_rate;
        teacher_options.seed = scenario.seed;
        const std::vector<Nanos> latencies = teacher_options.latencies;
        const std::uint64_t sequential_steps =
            options.sequential_steps > 0 ? options.sequential_steps : std::max<std::uint64_t>(1, options.steps / 4);

        Measured sequential;
        Measured parallel;
        std::uint64_t requests = 0;
        {
            const auto teacher = make_loopback_teacher(teacher_options);
            sequential = measure(options, *teacher, false, sequential_steps);
        }
        {
            const auto teacher = make_loopback_teacher(teacher_options);
            parallel = measure(options, *teacher, true, options.steps);
            requests = teacher->requests();
        }
        const Nanos oracle = oracle_makespan(latencies, scenario.concurrency, scenario.student());
        const double mean = mean_of(latencies);
        const double per_batch = bound_per_batch(mean, scenario.concurrency, scenario.student());
        const double sequential_per_batch =
            static_cast<double>(sequential.wall) / static_cast<double>(sequential_steps * options.micro_batches);
        const auto wall = static_cast<double>(parallel.wall);
        const ProgressEvent& last = parallel.outcome.last;

        boost::json::object report;
        report["command"] = "pipeline";
        report["batches"] = count;
        report["teacher_ms"] = mean * 1e-6;
        report["student_ms"] = scenario.student_ms;
        report["student_ms_measured"] = parallel.student * 1e-6;
        report["concurrency"] = scenario.concurrency;
        report["makespan_ms"] = wall * 1e-6;
        report["oracle_ms"] = static_cast<double>(oracle) * 1e-6;
        report["efficiency"] = static_cast<double>(oracle) / wall;
        report["stall_fraction"] = last.stall_fraction;
        report["sequential_ms_per_batch"] = sequential_per_batch * 1e-6;
        report["speedup_over_sequential"] = sequential_per_batch * static_cast<double>(count) / wall;
        report["bound"] = (mean + static_cast<double>(scenario.student())) / per_batch;
        report["teacher_hidden_fraction"] = last.teacher_hidden_fraction;
        report["bottleneck"] = last.bottleneck;
        report["requests"] = requests;
        report["retries"] = last.fetch.retries;
        report["hedges"] = last.fetch.hedges;
        report["hedge_wins"] = last.fetch.hedge_wins;
        report["last_limit"] = last.fetch.concurrency;
        std::cout << boost::json::serialize(report) << "\n";
        return 0;
    } catch (const std::exception& error) {
        std::cerr << "distilld-bench: " << error.what() << "\n";
        return 1;
    }
}

}  // namespace distilld::bench
