// distilld-bench pipeline: the whole stage graph on the wall clock, with a real HTTP teacher on loopback.
#include <algorithm>
#include <boost/asio/thread_pool.hpp>
#include <boost/json/object.hpp>

#include "bench/pipeline_run.hpp"
#include "bench/scenario.hpp"
#include "bench/timed_student.hpp"
#include "bench/virtual_pipeline.hpp"
#include "pipeline/core/stage.hpp"

namespace distilld::bench {

namespace asio = boost::asio;

boost::json::object run_pipeline(const PipelineOptions& options) {
    const Scenario& scenario = options.scenario;
    const std::uint64_t count = options.steps * options.micro_batches;
    const LoopbackTeacherOptions teacher_options = loopback_options(options, count);
    const std::vector<Nanos>& latencies = teacher_options.latencies;
    const std::uint64_t sequential_steps =
        options.sequential_steps > 0 ? options.sequential_steps : std::max<std::uint64_t>(1, options.steps / 4);

    asio::thread_pool compute(1);
    TimedStudent student(scenario.student(), options.busy_student);
    PipelineRun sequential;
    {
        const auto teacher = make_loopback_teacher(teacher_options);
        sequential =
            run_graph(options, student, compute.get_executor(), *teacher, Answers::live, false, sequential_steps);
    }
    // A fresh teacher: its latencies belong to first requests.
    const auto teacher = make_loopback_teacher(teacher_options);
    const PipelineRun parallel =
        run_graph(options, student, compute.get_executor(), *teacher, Answers::live, true, options.steps);

    const Nanos oracle = oracle_makespan(latencies, scenario.concurrency, scenario.student());
    const Nanos mean = mean_of(latencies);
    const Nanos per_batch = bound_per_batch(mean, scenario.concurrency, scenario.student());
    const double sequential_per_batch =
        to_milliseconds(sequential.wall) / static_cast<double>(sequential_steps * options.micro_batches);
    const double wall = to_milliseconds(parallel.wall);
    const ProgressEvent& last = parallel.outcome.last;

    // What decoding took in this very run, with its threads at work all the time from the first answer on.
    double decode_seconds = 0;
    for (const StageTimes& stage : last.stages) {
        decode_seconds += stage.stage == stage_name(Stage::decode) ? stage.busy_seconds : 0;
    }
    const Nanos first = *std::min_element(latencies.begin(), latencies.end());
    const Nanos decoded = first + from_seconds(decode_seconds) + scenario.student();
    const Nanos decode_bound = std::max(oracle, decoded);

    boost::json::object report;
    report["command"] = "pipeline";
    report["batches"] = count;
    report["teacher_ms"] = to_milliseconds(mean);
    report["student_ms"] = scenario.student_ms;
    report["student_ms_measured"] = to_milliseconds(student.mean_duration());
    report["concurrency"] = scenario.concurrency;
    report["endpoints"] = scenario.endpoints;
    report["slow_factor"] = scenario.slow_factor;
    report["makespan_ms"] = wall;
    report["oracle_ms"] = to_milliseconds(oracle);
    report["efficiency"] = to_milliseconds(oracle) / wall;
    report["decode_threads"] = last.fetch.decode_threads;
    report["decode_ms_per_batch"] = 1e3 * decode_seconds / static_cast<double>(count);
    report["decode_bound_efficiency"] = to_milliseconds(oracle) / to_milliseconds(decode_bound);
    report["stall_fraction"] = last.stall_fraction;
    report["sequential_ms_per_batch"] = sequential_per_batch;
    report["speedup_over_sequential"] = sequential_per_batch * static_cast<double>(count) / wall;
    report["bound"] = to_milliseconds(mean + scenario.student()) / to_milliseconds(per_batch);
    report["teacher_hidden_fraction"] = last.teacher_hidden_fraction;
    report["bottleneck"] = last.bottleneck;
    report["requests"] = teacher->requests();
    report["retries"] = last.fetch.retries;
    report["hedges"] = last.fetch.hedges;
    report["hedge_wins"] = last.fetch.hedge_wins;
    report["last_limit"] = last.fetch.concurrency;
    report["threads"] = parallel.threads;
    report["peak_resident_mb"] = static_cast<double>(peak_resident_bytes()) / 1e6;
    return report;
}

}  // namespace distilld::bench
