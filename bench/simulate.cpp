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
    const double mean = mean_of(latencies);
    const double fill = static_cast<double>(latencies.front());
    std::vector<Nanos> first = latencies;
    for (std::uint64_t n = 0; n < first.size(); ++n) {
        const bool stalls = SplitMix64(n * 3 + scenario.seed * 0x51ED2701).uniform() < options.stall_rate;
        if (stalls) {
            first[n] = static_cast<Nanos>(options.stall_factor * mean);
        }
    }
    std::uint64_t calls = 0;
    const VirtualTeacher teacher = [&](const IssueAction& request, std::uint32_t, Nanos) {
        ++calls;
        const bool is_first = request.attempt == 0 && !request.hedge;
        VirtualAnswer answer;
        answer.latency = is_first ? first[request.micro_batch] : latencies[SplitMix64(calls).next() % latencies.size()];
        if (request.endpoint + 1 == scenario.endpoints) {
            answer.latency = static_cast<Nanos>(scenario.slow_factor * static_cast<double>(answer.latency));
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
    scheduler.window = scenario.window;
    scheduler.hedge.enabled = scenario.hedge;
    const VirtualRun run = run_virtual(scheduler, scenario.student(), teacher);
    if (run.gave_up) {
        throw std::runtime_error("micro-batch " + std::to_string(run.gave_up->micro_batch) + " failed " +
                                 std::to_string(run.gave_up->attempts) + " times");
    }
    const Nanos oracle = oracle_makespan(first, scenario.concurrency, scenario.student());
    const double per_batch = bound_per_batch(mean, scenario.concurrency, scenario.student());
    const double bound = per_batch * static_cast<double>(options.batches) + fill;
    const double sequential = (mean + static_cast<double>(scenario.student())) * static_cast<double>(options.batches);
    const auto makespan = static_cast<double>(run.makespan);

    boost::json::object report;
    report["command"] = "simulate";
    report["batches"] = options.batches;
    report["teacher_ms"] = mean * 1e-6;
    report["student_ms"] = scenario.student_ms;
    report["concurrency"] = scenario.concurrency;
    report["endpoints"] = scenario.endpoints;
    report["slow_factor"] = scenario.slow_factor;
    report["window"] = scenario.window > 0 ? scenario.window : 4 * scenario.concurrency;
    report["makespan_ms"] = makespan * 1e-6;
    report["oracle_ms"] = static_cast<double>(oracle) * 1e-6;
    report["bound_ms"] = bound * 1e-6;
    report["efficiency"] = static_cast<double>(oracle) / makespan;
    report["efficiency_of_bound"] = bound / makespan;
    report["stall_fraction"] = static_cast<double>(run.waited) / makespan;
    report["speedup_over_sequential"] = sequential / makespan;
    report["bound"] = (mean + static_cast<double>(scenario.student())) / per_batch;
    report["requests"] = run.counters.requests;
    report["retries"] = run.counters.retries;
    report["hedges"] = run.counters.hedges;
    report["hedge_wins"] = run.counters.hedge_wins;
    report["most_in_flight"] = run.most_in_flight;
    report["last_limit"] = run.limit.empty() ? 0U : run.limit.back();
    report["highest_limit"] = run.limit.empty() ? 0U : *std::max_element(run.limit.begin(), run.limit.end());
    return report;
}

}  // namespace distilld::bench
