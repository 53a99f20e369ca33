#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "server/jobs/metrics/foreground_metrics.hpp"
#include "server/jobs/metrics/job_metrics.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/server/support/exposition.hpp"

namespace distilld {
namespace {

using test::sample;
using ::testing::HasSubstr;
using ::testing::Not;

ProgressEvent answered(std::uint64_t step, std::uint64_t times) {
    ProgressEvent event;
    event.step = step;
    EndpointCounters endpoint;
    endpoint.endpoint = "http://a/";
    endpoint.retries = times;
    endpoint.hedges = 2 * times;
    endpoint.hedge_wins = 3 * times;
    endpoint.breaker_openings = 4 * times;
    endpoint.tokens = 5 * times;
    endpoint.bytes_sent = 6 * times;
    endpoint.bytes_received = 7 * times;
    event.fetch.endpoints = {endpoint};
    event.fetch.hedge_wins = 3 * times;
    return event;
}

TEST(JobMetricRows, WhatAnEndpointWasAskedAndSaidGoesOnOverTheJobsRuns) {
    JobMetricsOptions options;
    options.gauge_grace = std::chrono::milliseconds(0);
    const auto metrics = std::make_shared<JobMetrics>(options);
    metrics->run_started("j");
    metrics->progress("j", answered(1, 10));
    metrics->run_started("j");
    const std::string labels = R"({endpoint="http://a/",job_id="j"})";
    EXPECT_EQ(sample(metrics->text(), "distilld_teacher_endpoint_retries_total" + labels), 10) << "counted once";
    metrics->progress("j", answered(2, 1));
    auto twice = answered(3, 2);
    twice.fetch.endpoints.push_back(twice.fetch.endpoints.front());  // one URL, two endpoints
    metrics->progress("j", twice);
    const auto text = metrics->text();
    const std::pair<const char*, double> expected[] = {
        {"retries_total", 1}, {"hedges_total", 2},     {"hedge_wins_total", 3},    {"breaker_openings_total", 4},
        {"tokens_total", 5},  {"sent_bytes_total", 6}, {"received_bytes_total", 7}};
    for (const auto& [name, times] : expected) {
        EXPECT_EQ(sample(text, std::string("distilld_teacher_endpoint_") + name + labels), 14 * times) << name;
    }
    EXPECT_EQ(sample(text, "distilld_teacher_hedge_wins_total"), 36);
    metrics->run_ended("j");
    EXPECT_THAT(metrics->text(), Not(HasSubstr("job_id")));
}

TEST(JobMetricRows, LinksToRelaysAreCounted) {
    JobMetricsOptions options;
    LinkCounts counts{7, 2, 3, 40};
    options.links = [&counts] { return counts; };
    const auto metrics = std::make_shared<JobMetrics>(options);
    const auto text = metrics->text();
    EXPECT_EQ(sample(text, "distilld_relay_connections_total"), 7);
    EXPECT_EQ(sample(text, "distilld_relay_reconnects_total"), 2);
    EXPECT_EQ(sample(text, "distilld_relays_connected"), 3);
    EXPECT_EQ(sample(text, "distilld_relay_unacknowledged_messages"), 40);
    counts.connected = 4;
    EXPECT_EQ(sample(metrics->text(), "distilld_relays_connected"), 4);
}

TEST(JobMetricRows, EachOfSeveralTeachersIsShownForItself) {
    const auto metrics = std::make_shared<JobMetrics>();
    metrics->run_started("j");
    ProgressEvent event = answered(1, 1);
    metrics->progress("j", event);
    EXPECT_THAT(metrics->text(), Not(HasSubstr("teacher=\""))) << "there is one";
    for (const char* name : {"code", "math"}) {
        TeacherCounters& teacher = event.fetch.teachers.emplace_back();
        teacher.teacher = name;
        teacher.wait_seconds = name == std::string("math") ? 2.5 : 0.25;
        teacher.tokens = 64;
        teacher.failures = 3;
        teacher.in_flight = 4;
        teacher.buffered = 5;
        teacher.window = 6;
    }
    event.step = 2;
    metrics->progress("j", event);
    const auto text = metrics->text();
    const auto of = [&text](const char* name, const char* teacher) {
        return sample(text, std::string("distilld_job_") + name + "{job_id=\"j\",teacher=\"" + teacher + "\"}");
    };
    EXPECT_EQ(of("teacher_wait_seconds_total", "math"), 2.5);
    EXPECT_EQ(of("teacher_wait_seconds_total", "code"), 0.25);
    EXPECT_EQ(of("several_teachers_tokens_total", "math"), 64);
    EXPECT_EQ(of("several_teachers_failures_total", "math"), 3);
    EXPECT_EQ(of("several_teachers_in_flight", "math"), 4);
    EXPECT_EQ(of("several_teachers_buffer_items", "math"), 5);
    EXPECT_EQ(of("several_teachers_window_items", "math"), 6);
}

TEST(JobMetricRows, HowATeacherWithOtherTokensFitsIsShown) {
    const auto metrics = std::make_shared<JobMetrics>();
    metrics->run_started("j");
    ProgressEvent event;
    event.step = 1;
    metrics->progress("j", event);
    EXPECT_THAT(metrics->text(), Not(HasSubstr("distilld_job_teacher_aligned_ratio{"))) << "there is none";
    event.step = 2;
    event.fetch.endpoints.emplace_back();
    metrics->progress("j", event);
    EXPECT_EQ(sample(metrics->text(), R"(distilld_job_teacher_mapped_mass_ratio{job_id="j"})"), 1) << "the student's";
    event.step = 3;
    event.fetch.alignment = AlignmentCounters{8, 6, 0.625};
    metrics->progress("j", event);
    const auto text = metrics->text();
    EXPECT_EQ(sample(text, R"(distilld_job_teacher_aligned_ratio{job_id="j"})"), 0.75);
    EXPECT_EQ(sample(text, R"(distilld_job_teacher_mapped_mass_ratio{job_id="j"})"), 0.625);
}

TEST(JobMetricRows, WhatAStudentWritesIsShown) {
    const auto metrics = std::make_shared<JobMetrics>();
    metrics->run_started("j");
    ProgressEvent event;
    event.step = 1;
    metrics->progress("j", event);
    EXPECT_THAT(metrics->text(), Not(HasSubstr("distilld_job_rollout_tokens_total{"))) << "there are no rollouts";
    event.step = 2;
    event.rollout = RolloutCounters{8, 40, 2, 5, 1.5, {{4, 6}, {12, 2}}};
    metrics->progress("j", event);
    const auto text = metrics->text();
    const auto of = [&text](const std::string& name) {
        return sample(text, "distilld_job_rollout_" + name + R"({job_id="j"})");
    };
    EXPECT_EQ(of("answers_total"), 8);
    EXPECT_EQ(of("tokens_total"), 40);
    EXPECT_EQ(of("cut_ratio"), 0.25);
    EXPECT_EQ(of("mean_tokens"), 5);
    EXPECT_EQ(of("entropy_nats"), 1.5);
    const auto up_to = [&text](const std::string& bound) {
        return sample(text, R"(distilld_job_rollout_answer_tokens_bucket{job_id="j",le=")" + bound + R"("})");
    };
    EXPECT_EQ(up_to("2"), 0);
    EXPECT_EQ(up_to("4"), 6);
    EXPECT_EQ(up_to("8"), 6);
    EXPECT_EQ(up_to("12"), 8);
    EXPECT_EQ(of("answer_tokens_sum"), 40);
    EXPECT_THAT(text, Not(HasSubstr("distilld_job_rollout_reverse_kl_nats{"))) << "the loss is another";
    event.step = 3;
    event.rollout->reverse_kl = 0.25;
    metrics->progress("j", event);
    EXPECT_EQ(sample(metrics->text(), R"(distilld_job_rollout_reverse_kl_nats{job_id="j"})"), 0.25);
}

TEST(JobMetricRows, EachOfSeveralRanksIsShownForItself) {
    const auto metrics = std::make_shared<JobMetrics>();
    metrics->run_started("j");
    metrics->run_details("j", 0, 1, 1, 2);
    ProgressEvent event;
    event.step = 1;
    for (const std::uint32_t rank : {0, 1}) {
        RankCounters& figures = event.ranks.emplace_back();
        figures.rank = rank;
        figures.tokens = 64 + rank;
        figures.wait_input_seconds = 0.5 + rank;
        figures.wait_ranks_seconds = 2.5 + rank;
    }
    metrics->progress("j", event);
    const auto text = metrics->text();
    EXPECT_EQ(sample(text, R"(distilld_job_ranks{job_id="j"})"), 2);
    EXPECT_EQ(sample(text, R"(distilld_job_rank_tokens_total{job_id="j",rank="1"})"), 65);
    EXPECT_EQ(sample(text, R"(distilld_job_rank_wait_seconds_total{job_id="j",rank="0",reason="input"})"), 0.5);
    EXPECT_EQ(sample(text, R"(distilld_job_rank_wait_seconds_total{job_id="j",rank="1",reason="ranks"})"), 3.5);
}

TEST(JobMetricRows, AGenerateJobHasRowsAndNoStudent) {
    const auto metrics = std::make_shared<JobMetrics>();
    metrics->run_started("g");
    metrics->run_details("g", 100, 64);
    ProgressEvent event;
    event.generates = true;
    event.step = 140;
    event.total_steps = 500;
    event.tokens = 1000;
    event.tokens_per_second = 50;
    event.fetch.store = StoreCounters{500, 140, 128, 4096};
    metrics->progress("g", event);
    const auto text = metrics->text();
    EXPECT_EQ(sample(text, "distilld_generate_rows_total"), 40);
    EXPECT_EQ(sample(text, "distilld_steps_total"), 0);
    EXPECT_EQ(sample(text, R"(distilld_tokens_total{role="student"})"), 0);
    EXPECT_EQ(sample(text, R"(distilld_teacher_store_rows{job_id="g",state="held"})"), 140);
    EXPECT_EQ(sample(text, R"(distilld_teacher_store_rows{job_id="g",state="sealed"})"), 128);
    EXPECT_EQ(sample(text, R"(distilld_teacher_store_rows{job_id="g",state="wanted"})"), 500);
    EXPECT_EQ(sample(text, R"(distilld_teacher_store_sealed_bytes{job_id="g"})"), 4096);
    EXPECT_EQ(sample(text, R"(distilld_job_tokens_per_second{job_id="g"})"), 50);
    for (const auto* name : {"loss", "replicas", "step", "grad_norm", "learning_rate", "stall_ratio"}) {
        EXPECT_THAT(text, Not(HasSubstr("distilld_job_" + std::string(name) + "{"))) << name;
    }
}

TEST(JobMetricRows, TellOfTheStudentAndOfWhatHoldsItUp) {
    JobMetricsOptions options;
    double now = 1000;
    options.unix_time = [&now] { return now; };
    const auto metrics = std::make_shared<JobMetrics>(options);
    metrics->run_started("j");
    metrics->run_details("j", 5, 1, 3);
    auto event = answered(5, 0);
    event.kd_loss = 1.25;
    event.ce_loss = 2.5;
    event.grad_norm = 0.75;
    event.learning_rate = 0.001;
    event.stages = {{"teacher", 1, 0, 0}, {"student", 1, 0, 0}};
    event.bottleneck = "teacher";
    event.measures.queues = {{"staging", 3, 8}, {"student", 1, 1}};
    event.tokens = 90;
    event.padding_tokens = 10;
    metrics->progress("j", event);
    EXPECT_THAT(metrics->text(), Not(HasSubstr("distilld_job_last_step_timestamp_seconds"))) << "it has done no step";
    event.step = 6;
    metrics->progress("j", event);
    now = 1001;
    metrics->progress("j", event);  // as the last event repeats it
    metrics->evaluated("j", {6, 3.5, 100});
    EXPECT_THAT(metrics->text(), Not(HasSubstr("distilld_job_eval_kl{"))) << "the teacher was not asked";
    metrics->evaluated("j", {6, 3.5, 100, 0.25, 0.75, 0.875});
    const auto text = metrics->text();
    EXPECT_EQ(sample(text, R"(distilld_job_eval_kl{job_id="j"})"), 0.25);
    EXPECT_EQ(sample(text, R"(distilld_job_eval_top1_agreement{job_id="j"})"), 0.75);
    EXPECT_EQ(sample(text, R"(distilld_job_eval_acceptance_rate{job_id="j"})"), 0.875);
    EXPECT_EQ(sample(text, R"(distilld_job_tokens_total{job_id="j"})"), 90);
    EXPECT_EQ(sample(text, R"(distilld_job_padding_tokens_total{job_id="j"})"), 10);
    EXPECT_EQ(sample(text, R"(distilld_job_last_step_timestamp_seconds{job_id="j"})"), 1000);
    EXPECT_EQ(sample(text, R"(distilld_job_kd_loss{job_id="j"})"), 1.25);
    EXPECT_EQ(sample(text, R"(distilld_job_ce_loss{job_id="j"})"), 2.5);
    EXPECT_EQ(sample(text, R"(distilld_job_eval_loss{job_id="j"})"), 3.5);
    EXPECT_EQ(sample(text, R"(distilld_job_grad_norm{job_id="j"})"), 0.75);
    EXPECT_EQ(sample(text, R"(distilld_job_replicas{job_id="j"})"), 3);
    EXPECT_EQ(sample(text, R"(distilld_job_learning_rate{job_id="j"})"), 0.001);
    EXPECT_EQ(sample(text, R"(distilld_job_bottleneck{job_id="j",stage="teacher"})"), 1);
    EXPECT_EQ(sample(text, R"(distilld_job_bottleneck{job_id="j",stage="student"})"), 0);
    EXPECT_EQ(sample(text, R"(distilld_stage_queue_items{job_id="j",stage="staging"})"), 3);
    EXPECT_EQ(sample(text, R"(distilld_stage_queue_capacity_items{job_id="j",stage="staging"})"), 8);
    metrics->run_started("j");
    event.tokens = 9;
    event.padding_tokens = 1;
    metrics->progress("j", event);
    EXPECT_EQ(sample(metrics->text(), R"(distilld_job_padding_tokens_total{job_id="j"})"), 11) << "of both its runs";
}

TEST(JobMetricRows, CheckpointsAreCountedAndTheNewestStays) {
    JobMetricsOptions options;
    double now = 1000;
    options.unix_time = [&now] { return now; };
    const auto metrics = std::make_shared<JobMetrics>(options);
    metrics->run_started("j");
    EXPECT_THAT(metrics->text(), Not(HasSubstr("distilld_job_checkpoint")));
    metrics->checkpoint_written("j", {10, "a", 0.5, 100});
    now = 2000;
    metrics->checkpoint_written("j", {20, "b", 2, 110});
    metrics->run_started("j");
    metrics->checkpoint_written("j", {30, "c", 0.5, 120});
    metrics->checkpoint_written("nobody", {30, "c", 0.5, 120});
    const auto text = metrics->text();
    EXPECT_EQ(sample(text, "distilld_checkpoints_total"), 3);
    EXPECT_EQ(sample(text, "distilld_checkpoint_written_bytes_total"), 330);
    EXPECT_EQ(sample(text, R"(distilld_checkpoint_duration_seconds_count{job_id="j"})"), 3);
    EXPECT_EQ(sample(text, R"(distilld_checkpoint_duration_seconds_sum{job_id="j"})"), 3);
    EXPECT_EQ(sample(text, R"(distilld_checkpoint_duration_seconds_bucket{job_id="j",le="0.5"})"), 2);
    EXPECT_EQ(sample(text, R"(distilld_job_checkpoint_step{job_id="j"})"), 30);
    EXPECT_EQ(sample(text, R"(distilld_job_checkpoint_bytes{job_id="j"})"), 120);
    EXPECT_EQ(sample(text, R"(distilld_job_checkpoint_timestamp_seconds{job_id="j"})"), 2000);
}

TEST(JobMetricRows, TellOfTheWorkerItsDeviceAndTheDisks) {
    const test::TemporaryFolder folder;
    test::write_bytes(folder / "jobs.sqlite", "12345");
    test::write_bytes(folder / "jobs.sqlite-wal", "123");
    JobMetricsOptions options;
    options.store_file = folder / "jobs.sqlite";
    const auto metrics = std::make_shared<JobMetrics>(options);
    EXPECT_THAT(metrics->text(), Not(HasSubstr("distilld_store_"))) << "until it is told of a store";
    metrics->update([](ServiceCounts& counts) { counts.store = {true, 4}; });
    metrics->run_started("j");
    EXPECT_THAT(metrics->text(), Not(HasSubstr("distilld_worker_resident_memory_bytes")));
    ProgressEvent event;
    WorkerUsage& usage = event.measures.usage;
    usage = {100, 200, 3.5, 17, "cuda:1", 11, 12, 13, 14, {{"output", 1000, 5000}, {"checkpoints", 7, 8}}};
    metrics->progress("j", event);
    usage.cpu_seconds = 5;
    metrics->progress("j", event);
    metrics->update([](ServiceCounts& counts) { counts.queue_waits.observe(0.75); });
    const auto text = metrics->text();
    EXPECT_EQ(sample(text, R"(distilld_worker_resident_memory_bytes{job_id="j"})"), 100);
    EXPECT_EQ(sample(text, R"(distilld_worker_peak_resident_memory_bytes{job_id="j"})"), 200);
    EXPECT_EQ(sample(text, R"(distilld_worker_open_fds{job_id="j"})"), 17);
    EXPECT_EQ(sample(text, "distilld_worker_cpu_seconds_total"), 5);
    const std::pair<const char*, double> kinds[] = {{"allocated", 11}, {"reserved", 12}, {"peak", 13}, {"total", 14}};
    for (const auto& [kind, bytes] : kinds) {
        const std::string labels = R"({device="cuda:1",job_id="j",kind=")" + std::string(kind) + "\"}";
        EXPECT_EQ(sample(text, "distilld_device_memory_bytes" + labels), bytes);
    }
    EXPECT_EQ(sample(text, "distilld_store_writable"), 1);
    EXPECT_EQ(sample(text, "distilld_store_unsaved_events"), 4);
    EXPECT_EQ(sample(text, "distilld_store_size_bytes"), 8);
    EXPECT_EQ(sample(text, R"(distilld_disk_free_bytes{job_id="j",of="output"})"), 1000);
    EXPECT_EQ(sample(text, R"(distilld_disk_size_bytes{job_id="j",of="checkpoints"})"), 8);
    EXPECT_EQ(sample(text, R"(distilld_disk_size_bytes{of="data"})"), std::filesystem::space(folder.path()).capacity);
    EXPECT_EQ(sample(text, "distilld_queue_wait_seconds_count"), 1);
    EXPECT_EQ(sample(text, "distilld_queue_wait_seconds_sum"), 0.75);
}

TEST(JobMetricRows, TellOfAProgramsNewestFiguresAndItsFailures) {
    const auto metrics = std::make_shared<JobMetrics>();
    EXPECT_EQ(sample(metrics->text(), R"(distilld_eval_commands_total{result="failed"})"), 0);
    metrics->run_started("j");
    metrics->judged("j", {1, {{"acc", 0.5}, {"gone", 1}}});
    metrics->judged("j", {2, {{"acc", 0.75}}});
    metrics->judged("j", {3, {}, 0, "it exited with code 3"});
    const auto text = metrics->text();
    EXPECT_EQ(sample(text, R"(distilld_job_figure{figure="acc",job_id="j"})"), 0.75) << "a failure leaves the last";
    EXPECT_THAT(text, Not(HasSubstr("gone")));
    EXPECT_EQ(sample(text, R"(distilld_eval_commands_total{result="figures"})"), 2);
    EXPECT_EQ(sample(text, R"(distilld_eval_commands_total{result="failed"})"), 1);
    metrics->run_started("j");
    EXPECT_EQ(sample(metrics->text(), R"(distilld_job_figure{figure="acc",job_id="j"})"), 0.75);
}

TEST(ForegroundMetrics, CountAWorkersRestartAndWhatIsWaitedFor) {
    const auto metrics = std::make_shared<JobMetrics>();
    ForegroundMetrics job(metrics, 16);
    StartedEvent started;
    started.batch_size = 2;
    job.count(started);
    ProgressEvent progress;
    progress.step = 4;
    progress.fetch.completed = 3;
    job.count(progress);
    job.count(WaitingEvent{"teacher_unavailable", "down", 1});
    EXPECT_EQ(sample(metrics->text(), R"(distilld_jobs_waiting{reason="teacher_unavailable"})"), 1);
    job.count(WaitingEvent{});
    started.first_step = 3;
    job.count(started);
    progress.step = 5;
    job.count(progress);
    job.count(CheckpointEvent{5, "c", 1, 50});
    job.count(EvaluationEvent{5, 2.5, 10});
    const auto text = metrics->text();
    EXPECT_THAT(text, Not(HasSubstr("distilld_jobs_waiting{")));
    EXPECT_EQ(sample(text, R"(distilld_jobs{state="running"})"), 1);
    EXPECT_EQ(sample(text, "distilld_worker_restarts_total"), 1);
    metrics->update([](ServiceCounts& counts) { ++counts.webhook_attempts["retried"]; });
    EXPECT_EQ(sample(metrics->text(), R"(distilld_webhook_deliveries_total{result="retried"})"), 1);
    EXPECT_EQ(sample(metrics->text(), R"(distilld_webhook_deliveries_total{result="delivered"})"), 0);
    EXPECT_EQ(sample(text, "distilld_worker_oom_restarts_total"), 0);
    EXPECT_EQ(sample(text, "distilld_steps_total"), 6) << "4 of the first worker and 2 of the second";
    EXPECT_EQ(sample(text, R"(distilld_tokens_total{role="teacher"})"), 2 * 3 * 32);
    EXPECT_EQ(sample(text, R"(distilld_job_step{job_id="run"})"), 5);
    EXPECT_EQ(sample(text, R"(distilld_job_checkpoint_bytes{job_id="run"})"), 50);
    EXPECT_EQ(sample(text, R"(distilld_job_eval_loss{job_id="run"})"), 2.5);
    EXPECT_THAT(text, Not(HasSubstr("distilld_store_")));
    started.batch_size = 1;
    job.count(started);
    EXPECT_EQ(sample(metrics->text(), "distilld_worker_oom_restarts_total"), 1) << "the rows were halved";
    EXPECT_EQ(sample(metrics->text(), "distilld_worker_restarts_total"), 1);
}

}  // namespace
}  // namespace distilld
