#include "bench/scenario.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <fstream>
#include <numeric>
#include <stdexcept>

#include "bench/virtual_pipeline.hpp"

namespace distilld::bench {

void add_scenario_options(CLI::App& app, Scenario& scenario) {
    app.add_option("--teacher-ms", scenario.teacher_ms, "mean latency of a request")->check(CLI::PositiveNumber);
    app.add_option("--student-ms", scenario.student_ms, "student time of a micro-batch")->check(CLI::PositiveNumber);
    app.add_option("--sigma", scenario.sigma, "sigma of the lognormal latency; 0 = constant")
        ->check(CLI::NonNegativeNumber);
    app.add_option("--failure-rate", scenario.failure_rate, "share of requests that fail")->check(CLI::Range(0.0, 0.9));
    app.add_option("--concurrency", scenario.concurrency, "C: requests in flight")->check(CLI::Range(1, 4096));
    app.add_flag("--adaptive", scenario.adaptive, "look for the smallest C, below --concurrency");
    app.add_option("--window", scenario.window, "W: issued and not yet consumed; 0 = as many as it takes");
    app.add_flag("--hedge", scenario.hedge, "second request for what is late");
    app.add_option("--endpoints", scenario.endpoints, "teacher endpoints")->check(CLI::Range(1, 64));
    app.add_option("--slow-factor", scenario.slow_factor, "the last endpoint takes so many times as long as its peers")
        ->check(CLI::Range(1.0, 1e6));
    app.add_option("--seed", scenario.seed, "of the drawn latencies");
    app.add_option("--latencies", scenario.latencies_file,
                   "file of milliseconds, one a line: request i's first attempt; replaces --teacher-ms and --sigma");
}

namespace {

std::vector<Nanos> read_latencies(const std::string& file, std::uint64_t count) {
    std::ifstream in(file);
    if (!in) {
        throw UsageError("--latencies " + file + ": cannot be read");
    }
    std::vector<Nanos> latencies;
    std::string line;
    for (std::uint64_t number = 1; latencies.size() < count && std::getline(in, line); ++number) {
        if (!line.empty() && line.back() == '\r') {
            line.pop_back();
        }
        if (line.empty()) {
            continue;
        }
        double value = 0;
        const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value);
        if (error != std::errc() || end != line.data() + line.size() || !(value >= 0) || value > 1e9) {
            throw UsageError("--latencies " + file + ":" + std::to_string(number) + ": not milliseconds: " + line);
        }
        latencies.push_back(from_milliseconds(value));
    }
    if (latencies.size() < count) {
        throw UsageError("--latencies " + file + ": " + std::to_string(latencies.size()) + " lines, " +
                         std::to_string(count) + " are needed");
    }
    return latencies;
}

}  // namespace

std::vector<Nanos> first_latencies(const Scenario& scenario, std::uint64_t count) {
    if (!scenario.latencies_file.empty()) {
        return read_latencies(scenario.latencies_file, count);
    }
    return lognormal_latencies(count, scenario.teacher(), scenario.sigma, scenario.seed);
}

Nanos mean_of(const std::vector<Nanos>& latencies) {
    return std::accumulate(latencies.begin(), latencies.end(), Nanos(0)) / static_cast<Nanos::rep>(latencies.size());
}

Nanos bound_per_batch(Nanos mean_latency, std::uint32_t concurrency, Nanos student) {
    return std::max(mean_latency / concurrency, student);
}

}  // namespace distilld::bench
