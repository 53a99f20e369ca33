#include "server/jobs/metrics/job_metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace distilld {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ProgressEvent progress(std::uint64_t step, std::uint64_t tokens, double busy) {
    ProgressEvent event;
    event.step = step;
    event.tokens = tokens;
    event.loss = 1.5;
    event.stages = {{"teacher", busy, busy / 2, 0.25}, {"student", busy, 0, 0}};
    event.teacher_hidden_fraction = 0.5;
    event.fetch.requests = step * 2;
    event.fetch.completed = step;
    event.fetch.retries = 1;
    event.fetch.hedges = 2;
    event.fetch.failures["timeout"] = 3;
    return event;
}

TEST(JobMetrics, CountersGoOnWhenAWorkerBeginsAnew) {
    const auto metrics = std::make_shared<JobMetrics>();
    metrics->run_started("j");
    metrics->run_details("j", 0, 100);
    metrics->progress("j", progress(2, 200, 4));
    metrics->progress("j", progress(4, 400, 8));
    metrics->run_ended("j");
    // Resumed at step 3: its counters begin at 0.
    metrics->run_started("j");
    metrics->run_details("j", 3, 100);
    metrics->progress("j", progress(5, 150, 2));
    const auto text = metrics->text();
    EXPECT_THAT(text, HasSubstr("\ndistilld_steps_total 6\n"));
    EXPECT_THAT(text, HasSubstr("\ndistilld_tokens_total{role=\"student\"} 550\n"));
    EXPECT_THAT(text, HasSubstr("\ndistilld_tokens_total{role=\"teacher\"} 900\n"));
    EXPECT_THAT(text, HasSubstr("\ndistilld_teacher_requests_total 18\n"));
    EXPECT_THAT(text, HasSubstr("\ndistilld_teacher_retries_total 2\n"));
    EXPECT_THAT(text, HasSubstr("\ndistilld_teacher_hedges_total 4\n"));
    EXPECT_THAT(text, HasSubstr("\ndistilld_teacher_failures_total{kind=\"timeout\"} 6\n"));
    EXPECT_THAT(text, HasSubstr("\ndistilld_stage_busy_seconds_total{stage=\"teacher\"} 10\n"));
    EXPECT_THAT(text, HasSubstr("\ndistilld_overlap_seconds_total 5\n"));
    EXPECT_THAT(text, HasSubstr("distilld_stage_wait_seconds_total{reason=\"input\",stage=\"teacher\"} 5\n"));
    EXPECT_THAT(text, HasSubstr("distilld_job_step{job_id=\"j\"} 5\n"));
}

ProgressEvent timed(std::uint64_t steps, std::uint64_t answers) {
    ProgressEvent event = progress(steps, 0, 0);
    for (std::uint64_t step = 0; step < steps; ++step) {
        event.durations.steps.observe(0.5);
    }
    RequestDurations answered{"http://a/", "success", {}};
    for (std::uint64_t answer = 0; answer < answers; ++answer) {
        answered.seconds.observe(0.002);
    }
    event.durations.requests = {answered};
    event.fetch.endpoints = {{"http://a/", 2, 4, true, {{"success", answers}}}};
    return event;
}

constexpr const char* kAnswers = "distilld_teacher_request_duration_seconds_";

TEST(JobMetrics, HistogramsOfAJobGoOnWhenAWorkerBeginsAnew) {
    const auto metrics = std::make_shared<JobMetrics>();
    metrics->run_started("j");
    EXPECT_THAT(metrics->text(), Not(HasSubstr("distilld_step_duration_seconds")));
    metrics->progress("j", timed(2, 8));
    metrics->progress("j", timed(4, 16));
    metrics->run_ended("j");
    metrics->run_started("j");
    // What the first run said last is still what there is.
    EXPECT_THAT(metrics->text(), HasSubstr("distilld_step_duration_seconds_count{job_id=\"j\"} 4\n"));
    metrics->progress("j", timed(1, 3));
    metrics->progress("j", timed(3, 12));
    const auto text = metrics->text();
    EXPECT_THAT(text, HasSubstr("distilld_step_duration_seconds_count{job_id=\"j\"} 7\n"));
    EXPECT_THAT(text, HasSubstr("distilld_step_duration_seconds_sum{job_id=\"j\"} 3.5\n"));
    EXPECT_THAT(text, HasSubstr("distilld_step_duration_seconds_bucket{job_id=\"j\",le=\"0.25\"} 0\n"));
    EXPECT_THAT(text, HasSubstr("distilld_step_duration_seconds_bucket{job_id=\"j\",le=\"0.5\"} 7\n"));
    const std::string labels = R"({endpoint="http://a/",job_id="j",outcome="success")";
    EXPECT_THAT(text, HasSubstr(kAnswers + ("count" + labels) + "} 28\n"));
    EXPECT_THAT(text, HasSubstr(kAnswers + ("bucket" + labels) + ",le=\"0.001\"} 0\n"));
    EXPECT_THAT(text, HasSubstr(kAnswers + ("bucket" + labels) + ",le=\"0.0025\"} 28\n"));
    EXPECT_THAT(text, HasSubstr(kAnswers + ("bucket" + labels) + ",le=\"+Inf\"} 28\n"));
}

TEST(JobMetrics, AnEndpointIsShownForItselfUntilTheGraceIsOver) {
    JobMetricsOptions options;
    options.gauge_grace = std::chrono::milliseconds(0);
    const auto metrics = std::make_shared<JobMetrics>(options);
    metrics->run_started("j");
    auto event = timed(1, 1);
    // The same URL twice is one series.
    event.fetch.endpoints.push_back(event.fetch.endpoints.front());
    event.durations.requests.push_back(event.durations.requests.front());
    event.fetch.endpoints.push_back({"http://b/?q=\"\\\n", 1, 8, false, {}});
    // A worker of another version has other bounds.
    event.durations.requests.push_back({"http://c/", "success", {{1, 2, 3}, 6}});
    metrics->progress("j", event);
    const auto text = metrics->text();
    EXPECT_THAT(text, HasSubstr("distilld_teacher_endpoint_in_flight{endpoint=\"http://a/\",job_id=\"j\"} 4\n"));
    EXPECT_THAT(text, HasSubstr("distilld_teacher_endpoint_limit{endpoint=\"http://a/\",job_id=\"j\"} 8\n"));
    EXPECT_THAT(text, HasSubstr(R"(endpoint_limit{endpoint="http://b/?q=\"\\\n",job_id="j"} 8)"));
    EXPECT_THAT(text, HasSubstr("distilld_teacher_endpoint_open{endpoint=\"http://a/\",job_id=\"j\"} 1\n"));
    EXPECT_THAT(text, HasSubstr(R"(count{endpoint="http://a/",job_id="j",outcome="success"} 2)"));
    EXPECT_THAT(text, Not(HasSubstr("http://c/")));
    metrics->run_ended("j");
    EXPECT_THAT(metrics->text(), Not(HasSubstr("job_id=\"j\"")));

    const auto patient = std::make_shared<JobMetrics>();
    patient->run_started("j");
    patient->progress("j", timed(1, 1));
    patient->run_ended("j");
    const auto ended = patient->text();
    EXPECT_THAT(ended, HasSubstr("distilld_teacher_endpoint_in_flight{endpoint=\"http://a/\",job_id=\"j\"} 0\n"));
    EXPECT_THAT(ended, HasSubstr("distilld_teacher_endpoint_open{endpoint=\"http://a/\",job_id=\"j\"} 0\n"));
    EXPECT_THAT(ended, HasSubstr("distilld_step_duration_seconds_count{job_id=\"j\"} 1\n"));
}

TEST(JobMetrics, GaugesOfAJobGoAfterTheGrace) {
    JobMetricsOptions options;
    options.gauge_grace = std::chrono::milliseconds(0);
    const auto metrics = std::make_shared<JobMetrics>(options);
    metrics->run_started("j");
    metrics->progress("j", progress(1, 1, 1));
    EXPECT_THAT(metrics->text(), HasSubstr("distilld_job_loss{job_id=\"j\"} 1.5"));
    metrics->run_ended("j");
    EXPECT_THAT(metrics->text(), Not(HasSubstr("job_id=\"j\"")));
    metrics->progress("j", progress(2, 2, 2));
    EXPECT_THAT(metrics->text(), Not(HasSubstr("job_id=\"j\"")));

    const auto patient = std::make_shared<JobMetrics>();
    patient->run_started("j");
    patient->run_ended("j");
    EXPECT_THAT(patient->text(), HasSubstr("distilld_job_step{job_id=\"j\"}"));
}

TEST(JobMetrics, ThereIsNoLossBeforeTheFirstStep) {
    const auto metrics = std::make_shared<JobMetrics>();
    metrics->run_started("j");
    EXPECT_THAT(metrics->text(), Not(HasSubstr("distilld_job_loss")));
    metrics->progress("j", progress(1, 1, 1));
    EXPECT_THAT(metrics->text(), HasSubstr("distilld_job_loss{job_id=\"j\"} 1.5"));
}

TEST(JobMetrics, ShowsStatesResultsRequestsAndProcess) {
    JobMetricsOptions options;
    options.version = "1.2.3";
    const auto metrics = std::make_shared<JobMetrics>(options);
    metrics->update([](ServiceCounts& counts) { counts.jobs = {{api::JobState::running, 2}}; });
    metrics->update([](ServiceCounts& counts) { ++counts.finished[api::JobState::failed]; });
    metrics->http_request("GET", "/v1/jobs/{id}", 404, std::chrono::milliseconds(3));
    const auto text = metrics->text();
    EXPECT_THAT(text, HasSubstr("distilld_jobs{state=\"running\"} 2\n"));
    EXPECT_THAT(text, HasSubstr("distilld_jobs{state=\"queued\"} 0\n"));
    EXPECT_THAT(text, HasSubstr("distilld_jobs_finished_total{result=\"failed\"} 1\n"));
    EXPECT_THAT(text, HasSubstr("distilld_jobs_finished_total{result=\"succeeded\"} 0\n"));
    EXPECT_THAT(text, HasSubstr("distilld_build_info{version=\"1.2.3\"} 1\n"));
    EXPECT_THAT(text, HasSubstr("{code=\"404\",method=\"GET\",route=\"/v1/jobs/{id}\"} 1\n"));
    EXPECT_THAT(
        text,
        HasSubstr(
            "distilld_http_request_duration_seconds_bucket{code=\"404\",route=\"/v1/jobs/{id}\",le=\"0.005\"} 1\n"));
    for (const auto* name : {"process_resident_memory_bytes ", "process_cpu_seconds_total ",
                             "process_start_time_seconds ", "process_open_fds "}) {
        const auto place = text.find(std::string("\n") + name);
        ASSERT_NE(place, std::string::npos) << name;
        EXPECT_GT(std::stod(text.substr(place + 1 + std::string(name).size())), 0.0) << name;
    }
    metrics->update([](ServiceCounts& counts) { counts.jobs = {}; });
    EXPECT_THAT(metrics->text(), HasSubstr("distilld_jobs{state=\"running\"} 0\n"));
}

// The recipe of CONTRIBUTING.md: a metric is one row.
TEST(JobMetrics, ARowIsAllThatAMetricNeeds) {
    auto rows = job_metric_rows();
    rows.runs.push_back({"distilld_job_made_up_norm",
                         "Norm of the newest gradient.",
                         MetricType::gauge,
                         {"job_id"},
                         [](const JobRun& run) { return run.progress.grad_norm; }});
    rows.runs.push_back({"distilld_teacher_made_up_wins_total",
                         "Hedges that came first.",
                         MetricType::counter,
                         {},
                         [](const JobRun& run) { return static_cast<double>(run.progress.fetch.hedge_wins); }});
    rows.service.push_back(
        {"distilld_jobs_alive", "Jobs that have not ended.", MetricType::gauge, {}, [](const ServiceCounts& counts) {
             return static_cast<double>(counts.jobs.at(api::JobState::running));
         }});
    const auto metrics = std::make_shared<JobMetrics>(JobMetricsOptions{}, rows);
    metrics->update([](ServiceCounts& counts) { counts.jobs = {{api::JobState::running, 3}}; });
    for (const auto* job : {"a", "b"}) {
        auto event = progress(1, 1, 1);
        event.grad_norm = 0.5;
        event.fetch.hedge_wins = 2;
        metrics->run_started(job);
        metrics->progress(job, event);
    }
    const auto text = metrics->text();
    EXPECT_THAT(text, HasSubstr("# HELP distilld_job_made_up_norm Norm of the newest gradient.\n"
                                "# TYPE distilld_job_made_up_norm gauge\n"
                                "distilld_job_made_up_norm{job_id=\"a\"} 0.5\n"
                                "distilld_job_made_up_norm{job_id=\"b\"} 0.5\n"));
    EXPECT_THAT(text, HasSubstr("\ndistilld_teacher_made_up_wins_total 4\n"));
    EXPECT_THAT(text, HasSubstr("\ndistilld_jobs_alive 3\n"));
}

}  // namespace
}  // namespace distilld
