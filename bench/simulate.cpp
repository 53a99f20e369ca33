// distilld-bench simulate: the service's scheduler under a virtual clock.
#include <algorithm>
#include <boost/json/object.hpp>
#include <stdexcept>
#include <string>

#include "base/random.hpp"
#include "bench/scenario.hpp"
#include "bench/virtual_pipeline.hpp"

namespace distilld::bench {

boost::json::object run_simulate(const SimulateOptions& options) {
    const Scenario& scenario = options.scenario;
    const std::vector<Nanos> latencies = first_latencies(scenario, options.batches);
    const Nanos mean = mean_of(latencies);
    std::vector<Nanos> first = latencies;
    for (std::uint64_t n = 0; n < first.size(); ++n) {
        const bool stalls = SplitMix64(n * 3 + scenario.seed * 0x51ED2701).uniform() < options.stall_rate;
        if (stalls) {
            first[n] = scaled(mean, options.stall_factor);
        }
    }
    std::uint64_t calls = 0;
    const VirtualTeacher teacher = [&](const IssueAction& request, std::uint32_t, Instant) {
        ++calls;
        const bool is_first = request.attempt == 0 && !request.hedge;
        VirtualAnswer answer;
        answer.latency = is_first ? first[request.micro_batch] : latencies[SplitMix64(calls).next() % latencies.size()];
        if (request.endpoint + 1 == scenario.endpoints) {
            answer.latency = scaled(answer.latency, scenario.slow_factor);
        }
        if (SplitMix64(calls * 7 + scenario.seed).uniform() < scenario.failure_rate) {
            answer.failure = FailureKind::server_error;
        }
        return answer;
    };
    SchedulerOptions scheduler;
    scheduler.end = options.batches;
    scheduler.endpoints = scenario.endpoints;
    scheduler.limit.ceiling = scenario.concurrency;
    scheduler.limit.adaptive = scenario.adaptive;
    scheduler.window.size = scenario.window;
    scheduler.hedge.enabled = scenario.hedge;
    const VirtualRun run = run_virtual(scheduler, scenario.student(), teacher);
    if (run.gave_up) {
        throw std::runtime_error("micro-batch " + std::to_string(run.gave_up->micro_batch) + " failed " +
                                 std::to_string(run.gave_up->attempts) + " times");
    }
    const Nanos oracle = oracle_makespan(first, scenario.concurrency, scenario.student());
    const Nanos per_batch = bound_per_batch(mean, scenario.concurrency, scenario.student());
    const double bound = to_milliseconds(options.batches * per_batch + latencies.front());
    const Nanos sequential = mean + scenario.student();
    const double makespan = to_milliseconds(run.makespan);

    boost::json::object report;
    report["command"] = "simulate";
    report["batches"] = options.batches;
    report["teacher_ms"] = to_milliseconds(mean);
    report["student_ms"] = scenario.student_ms;
    report["concurrency"] = scenario.concurrency;
    report["endpoints"] = scenario.endpoints;
    report["slow_factor"] = scenario.slow_factor;
    report["window"] = run.window;
    report["makespan_ms"] = makespan;
    report["oracle_ms"] = to_milliseconds(oracle);
    report["bound_ms"] = bound;
    report["efficiency"] = to_milliseconds(oracle) / makespan;
    report["efficiency_of_bound"] = bound / makespan;
    report["stall_fraction"] = to_milliseconds(run.waited) / makespan;
    report["speedup_over_sequential"] = to_milliseconds(options.batches * sequential) / makespan;
    report["bound"] = to_milliseconds(sequential) / to_milliseconds(per_batch);
    report["requests"] = run.counters.requests;
    report["retries"] = run.counters.retries;
    report["hedges"] = run.counters.hedges;
    report["hedge_wins"] = run.counters.hedge_wins;
    report["most_in_flight"] = run.max_in_flight;
    report["last_limit"] = run.limit.empty() ? 0U : run.limit.back();
    report["highest_limit"] = run.limit.empty() ? 0U : *std::max_element(run.limit.begin(), run.limit.end());
    return report;
}

}  // namespace distilld::bench
