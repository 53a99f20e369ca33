// distilld-bench pipeline --faulty: one replica of several at fault, on the wall clock.
#include <boost/asio/thread_pool.hpp>
#include <boost/json/object.hpp>

#include "base/enum_names.hpp"
#include "bench/pipeline_run.hpp"
#include "bench/scenario.hpp"
#include "bench/timed_student.hpp"

namespace distilld::bench {

namespace {

PipelineRun run_with(const PipelineOptions& options, TimedStudent& student, boost::asio::thread_pool& compute) {
    const auto teacher = make_loopback_teacher(loopback_options(options, options.steps * options.micro_batches));
    return run_graph(options, student, compute.get_executor(), *teacher, Answers::live, true, options.steps);
}

}  // namespace

boost::json::object run_pipeline_with_fault(const PipelineOptions& options) {
    if (options.scenario.endpoints < 2) {
        throw UsageError("--faulty: needs --endpoints 2 at least");
    }
    PipelineOptions whole = options;
    whole.scenario.hedge = true;  // as a job has by default
    PipelineOptions others = whole;
    others.scenario.endpoints -= 1;
    others.scenario.fault = EndpointFault::none;

    boost::asio::thread_pool compute(1);
    TimedStudent student(options.scenario.student(), options.busy_student);
    const PipelineRun alone = run_with(others, student, compute);
    const PipelineRun faulty = run_with(whole, student, compute);
    const auto count = static_cast<double>(options.steps * options.micro_batches);
    const FetchCounters& fetch = faulty.outcome.last.fetch;

    boost::json::object report;
    report["command"] = "pipeline";
    report["faulty"] = name_of(kEndpointFaultNames, options.scenario.fault);
    report["endpoints"] = options.scenario.endpoints;
    report["concurrency"] = options.scenario.concurrency;
    report["healthy_alone_per_second"] = count / to_seconds(alone.wall);
    report["with_faulty_per_second"] = count / to_seconds(faulty.wall);
    report["ratio"] = to_seconds(alone.wall) / to_seconds(faulty.wall);
    report["retries"] = fetch.retries;
    report["hedges"] = fetch.hedges;
    report["breaker_openings"] = fetch.breaker_openings;
    boost::json::object failures;
    for (const auto& [kind, times] : fetch.failures) {
        failures[kind] = times;
    }
    report["failures"] = std::move(failures);
    return report;
}

}  // namespace distilld::bench
