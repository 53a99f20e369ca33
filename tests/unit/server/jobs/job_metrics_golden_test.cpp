#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/jobs/metrics/job_metrics.hpp"
#include "tests/support/paths.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/server/support/exposition.hpp"

namespace distilld {
namespace {

ProgressEvent progress(std::uint64_t step) {
    const auto times = static_cast<double>(step);
    ProgressEvent event;
    event.step = step;
    event.total_steps = 10;
    event.loss = 3.25 / times;
    event.tokens = step * 64;
    event.tokens_per_second = 123.5;
    event.stall_fraction = 0.125;
    event.teacher_hidden_fraction = 0.75;
    event.stages = {{"teacher", times, times / 4, 0.5}, {"student", times / 2, 0.25, 0}};
    event.fetch.requests = step * 3;
    event.fetch.completed = step * 2;
    event.fetch.retries = step;
    event.fetch.hedges = 1;
    event.fetch.bytes_received = step * 1000;
    event.fetch.concurrency = 8;
    event.fetch.in_flight = 5;
    event.fetch.buffered = 2;
    event.fetch.decode_threads = 3;
    event.fetch.failures = {{"timeout", step}, {"server", 1}};
    event.nonfinite_steps = 1;
    event.fetch.endpoints = {{"http://a/\"quoted\"\\", 3, 6, false, {{"success", step}}},
                             {"http://b/", 1, 1, true, {}}};
    for (std::uint64_t done = 0; done < step; ++done) {
        event.durations.steps.observe(0.25);
    }
    DurationCounts seconds = event.durations.steps;
    seconds.observe(400);
    event.kd_loss = 1.5;
    event.ce_loss = 2.5;
    event.grad_norm = 0.75;
    event.learning_rate = 0.001;
    event.bottleneck = "teacher";
    event.fetch.hedge_wins = 1;
    EndpointCounters& asked = event.fetch.endpoints.front();
    asked.retries = step;
    asked.hedges = 2;
    asked.hedge_wins = 1;
    asked.breaker_openings = 1;
    asked.tokens = step * 64;
    asked.bytes_sent = step * 100;
    asked.bytes_received = step * 1000;
    event.measures.queues = {{"decode", 1, 8}, {"staging", 4, 16}, {"student", 1, 1}};
    event.measures.usage = {1000, 2000, times, 17, "cuda:0", 10, 20, 30, 40, {{"output", 500, 5000}}};
    event.measures.sinks = {{"jsonl", step * 2, 0}, {"mlflow", step, 1}};
    event.durations.requests = {{"http://a/\"quoted\"\\", "success", seconds}, {"http://b/", "failure", seconds}};
    return event;
}

// The golden text was written by the program as it was before its metrics became rows of tables (prometheus-cpp's
// registry with one object a metric), and has grown since. A metric that is added needs no line there; one that is in
// it may not change.
TEST(JobMetrics, TextIsWhatItHasAlwaysBeen) {
    JobMetricsOptions options;
    options.version = "1.2.3";
    options.unix_time = [] { return 1.5e9; };
    const auto metrics = std::make_shared<JobMetrics>(options);
    metrics->update(
        [](ServiceCounts& counts) { counts.jobs = {{api::JobState::running, 2}, {api::JobState::failed, 1}}; });
    metrics->update([](ServiceCounts& counts) { counts.nodes = {{"idle", {2, 0, 8}}, {"mixed", {1, 1, 4}}}; });
    metrics->run_started("live");
    metrics->run_details("live", 0, 32);
    metrics->progress("live", progress(1));
    metrics->progress("live", progress(4));
    metrics->evaluated("live", {4, 2.25, 640});
    metrics->checkpoint_written("live", {4, "step-4", 0.25, 12345});
    metrics->update([](ServiceCounts& counts) { counts.store = {true, 3}; });
    metrics->update([](ServiceCounts& counts) { counts.queue_waits.observe(7.5); });
    metrics->run_started("over");
    metrics->run_details("over", 2, 16);
    metrics->progress("over", progress(3));
    metrics->run_ended("over");
    metrics->run_started("silent");
    metrics->update([](ServiceCounts& counts) { ++counts.finished[api::JobState::failed]; });
    metrics->http_request("GET", "/v1/jobs/{id}", 200, std::chrono::milliseconds(3));
    metrics->http_request("GET", "/v1/jobs/{id}", 200, std::chrono::seconds(90));
    metrics->http_request("POST", "/v1/jobs", 400, std::chrono::microseconds(1500));
    const auto golden =
        test::exposition_lines(test::read_bytes(test::source_dir() / "tests/unit/server/jobs/job_metrics_golden.txt"));
    ASSERT_GT(golden.size(), 100U);
    const auto lines = test::lines_without_process_values(metrics->text());
    EXPECT_THAT(lines, ::testing::IsSupersetOf(golden));
}

}  // namespace
}  // namespace distilld
