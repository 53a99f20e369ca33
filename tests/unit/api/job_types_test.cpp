#include "api/job_types.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <limits>

#include "api/job_fields.hpp"
#include "api/problem.hpp"
#include "base/json_text.hpp"
#include "tests/support/field_filler.hpp"

namespace distilld::api {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Job full_job() {
    Job job;
    job.id = "job-1";
    job.name = "n";
    job.owner = "alice";
    job.metadata = {{"project", "tiny"}, {"ticket", "17"}};
    job.state = JobState::running;
    job.cancel_requested = true;
    job.priority = -5;
    job.max_concurrent = 3;
    job.created_at = "2026-01-01T00:00:00.000Z";
    job.started_at = "2026-01-01T00:00:01.000Z";
    job.status_reason = StatusReason{"c", "m"};
    job.queue_position = 3;
    job.attempt = 2;
    job.task = 1;
    job.task_of = "job-0";
    job.slot = 1;
    job.cores = {2, 3};
    job.device = "GPU-1";
    job.dtype = "bf16";
    job.eval_loss = 1.5;
    job.eval_kl = 0.5;
    job.eval_top1_agreement = 0.75;
    job.eval_acceptance_rate = 0.875;
    job.exported_eval_loss = 1.75;
    job.output = "/out";
    job.checkpoints.push_back({5, "/out/checkpoints/step-5", 0.25, "2026-01-01T00:00:02.000Z", 4096});
    job.spec_json = R"({"name":"n"})";
    job.resolved_spec_json = R"({"name":"n","output":"/out"})";
    ProgressEvent progress;
    progress.step = 5;
    progress.total_steps = 40;
    progress.loss = 2.25;
    progress.kd_loss = std::numeric_limits<double>::quiet_NaN();
    progress.tokens = 12345;
    progress.stages.push_back({"student", 1, 2, 3});
    progress.bottleneck = "student";
    progress.fetch.requests = 9;
    progress.fetch.endpoints.push_back({"http://a/", 1, 2, true, {{"success", 3}}});
    progress.durations.steps.observe(1);
    progress.measures.queues.push_back({"student", 1, 1});
    progress.fetch.failures["timeout"] = 2;
    progress.fetch.in_flight = 4;
    job.progress = progress;
    return job;
}

TEST(JobTypes, JobSurvivesTheRoundTrip) {
    const auto job = full_job();
    const auto json = to_json_object(job, true);
    EXPECT_EQ(json.at("state").as_string(), "running");
    EXPECT_FALSE(json.at("terminal").as_bool());
    EXPECT_EQ(json.at("progress").at("percent").to_number<double>(), 12.5);
    EXPECT_TRUE(json.at("progress").at("kd_loss").is_null());
    EXPECT_TRUE(json.at("finished_at").is_null());
    EXPECT_EQ(json.at("spec").at("name").as_string(), "n");
    const auto again = job_from_json(boost::json::parse(boost::json::serialize(json)));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(boost::json::serialize(to_json_object(*again, true)), boost::json::serialize(json));
    EXPECT_EQ(again->kind, JobKind::train);
    EXPECT_EQ(again->owner, "alice");
    EXPECT_EQ(again->attempt, 2U);
    EXPECT_EQ(again->metadata, job.metadata);
    EXPECT_TRUE(std::isnan(again->progress->kd_loss));
    EXPECT_EQ(again->progress->fetch.failures.at("timeout"), 2U);
}

TEST(JobTypes, ListedJobsHaveNoSpecs) {
    const auto json = to_json_object(full_job(), false);
    EXPECT_FALSE(json.contains("spec"));
    EXPECT_FALSE(json.contains("resolved_spec"));
}

TEST(JobTypes, SaysWhatItIsWhoseItIsAndWhatItsOwnerSaidOfIt) {
    const auto json = to_json_object(full_job(), false);
    EXPECT_EQ(json.at("kind").as_string(), "train");
    EXPECT_EQ(json.at("owner").as_string(), "alice");
    EXPECT_EQ(json.at("metadata").at("ticket").as_string(), "17");
    const auto bare = to_json_object(Job{}, false);
    EXPECT_EQ(bare.at("kind").as_string(), "train");
    EXPECT_TRUE(bare.at("owner").is_null());
    EXPECT_TRUE(bare.at("metadata").as_object().empty());
}

TEST(JobTypes, AJobOfAnOlderServiceTrains) {
    const auto job = job_from_json(boost::json::parse(R"({"id":"x","state":"queued"})"));
    ASSERT_TRUE(job);
    EXPECT_EQ(job->kind, JobKind::train);
    EXPECT_TRUE(job->owner.empty());
    EXPECT_TRUE(job->metadata.empty());
}

TEST(JobTypes, RefusesJobsThatMakeNoSense) {
    EXPECT_FALSE(job_from_json(boost::json::parse("[]")));
    EXPECT_FALSE(job_from_json(boost::json::parse(R"({"id":"x","state":"dancing"})")));
    EXPECT_FALSE(job_from_json(boost::json::parse(R"({"id":"x","state":"queued","kind":"bake"})")));
    EXPECT_FALSE(job_from_json(boost::json::parse(R"({"id":"x","state":"queued","metadata":{"a":1}})")));
    EXPECT_FALSE(job_from_json(boost::json::parse(R"({"id":1,"state":"queued"})")));
    EXPECT_FALSE(job_from_json(boost::json::parse(R"({"id":"x"})")));
    const auto negative = job_from_json(boost::json::parse(R"({"id":"x","state":"queued","progress":{"step":-1}})"));
    ASSERT_FALSE(negative);
    EXPECT_THAT(negative.error().message, HasSubstr("/progress/step"));
}

TEST(JobTypes, EventSurvivesTheRoundTrip) {
    JobEvent event;
    event.sequence = 7;
    event.created_at = "2026-01-01T00:00:00.000Z";
    event.level = "warn";
    event.type = EventType::checkpoint;
    event.message = "line\nbreak";
    event.data["step"] = 5;
    const auto again = job_event_from_json(to_json_object(event));
    ASSERT_TRUE(again);
    EXPECT_EQ(to_json_object(*again), to_json_object(event));
    EXPECT_FALSE(job_event_from_json(boost::json::parse(R"({"type":"nonsense"})")));
}

TEST(JobTypes, DescribesEveryMember) {
    EXPECT_EQ(test::described_fields<StatusReason>(), test::member_count<StatusReason>());
    EXPECT_EQ(test::described_fields<JobCheckpoint>(), test::member_count<JobCheckpoint>());
    EXPECT_EQ(test::described_fields<JobEvent>(), test::member_count<JobEvent>());
    // The two specs, how many checkpoints are shown, what was asked for in OpenAI's terms, and the owner's id, which
    // nobody is told.
    const std::size_t others = 5;
    EXPECT_EQ(test::described_fields<Job>() + others, test::member_count<Job>());
}

TEST(JobTypes, ShowsExactlyWhatTheContractNames) {
    const auto json = to_json_object(full_job(), true);
    std::vector<std::string> names;
    for (const auto& member : json) {
        names.emplace_back(member.key());
    }
    EXPECT_THAT(
        names,
        ElementsAre("id", "object", "kind", "name", "owner", "metadata", "state", "terminal", "cancel_requested",
                    "created_at", "started_at", "finished_at", "attempt", "status_reason", "task", "task_of", "tasks",
                    "priority", "queue_position", "max_concurrent", "slot", "cores", "device", "progress", "dtype",
                    "eval_loss", "eval_kl", "eval_top1_agreement", "eval_acceptance_rate", "exported_eval_loss",
                    "output", "weights_sha256", "checkpoints", "checkpoints_total", "spec", "resolved_spec"));
    EXPECT_EQ(json.at("object").as_string(), "job");
    EXPECT_EQ(
        to_text(json.at("progress")),
        R"({"percent":12.5,"generates":false,"of_samples":false,"step":5,"total_steps":40,"seconds_remaining":0,)"
        R"("seconds_elapsed":0,)"
        R"("tokens":12345,"padding_tokens":0,)"
        R"("tokens_per_second":0,"loss":2.25,"kd_loss":null,"ce_loss":0,"grad_norm":0,"learning_rate":0,)"
        R"("stall_fraction":0,"teacher_hidden_fraction":0,"bottleneck":"student","stages":[{"stage":"student",)"
        R"("busy_seconds":1,"wait_input_seconds":2,"wait_output_seconds":3}],"fetch":{"requests":9,"completed":0,)"
        R"("retries":0,"hedges":0,"hedge_wins":0,"failures":{"timeout":2},"breaker_openings":0,)"
        R"("bytes_received":0,"open_endpoints":0,"concurrency":0,"window":0,)"
        R"("in_flight":4,"buffered":0,"decode_threads":0,"latency_p50_seconds":0,)"
        R"("latency_p95_seconds":0,"endpoints":[{"endpoint":"http://a/","in_flight":1,"limit":2,"open":true,)"
        R"("outcomes":{"success":3},"retries":0,"hedges":0,"hedge_wins":0,"breaker_openings":0,"tokens":0,)"
        R"("tokens_per_second":0,)"
        R"("bytes_sent":0,"bytes_received":0,"latency_seconds":0}],"store":null,"teachers":[],)"
        R"("head":{"bytes":0,"seconds":0},"alignment":null},"rollout":null,"nonfinite_steps":0,"ranks":[]})")
        << "and neither durations nor measures, which are for the metrics";
    EXPECT_EQ(to_text(json.at("checkpoints")), R"([{"step":5,"folder":"/out/checkpoints/step-5","seconds":0.25,)"
                                               R"("created_at":"2026-01-01T00:00:02.000Z","bytes":4096}])");
}

TEST(JobTypes, TimesAreRfc3339) {
    const std::chrono::system_clock::time_point time(std::chrono::milliseconds(1767225600123));
    EXPECT_EQ(rfc3339(time), "2026-01-01T00:00:00.123Z");
    EXPECT_EQ(parse_rfc3339("2026-01-01T00:00:00.123Z"), time);
    for (const auto* other : {"", "yesterday", "2026-01-01T00:00:00.123", "2026-02-31T00:00:00.123Z",
                              "2026-01-01T00:00:00.123Z ", "2026-01-01T24:00:00.000Z"}) {
        EXPECT_EQ(parse_rfc3339(other), std::nullopt) << other;
    }
}

TEST(JobTypes, EveryStateHasAName) {
    for (const auto state : {JobState::queued, JobState::running, JobState::pausing, JobState::paused,
                             JobState::succeeded, JobState::failed, JobState::cancelled}) {
        EXPECT_EQ(enum_from_string<JobState>(to_string(state)), state);
    }
    EXPECT_FALSE(is_terminal(JobState::pausing));
    EXPECT_FALSE(is_terminal(JobState::paused));
    EXPECT_FALSE(enum_from_string<JobState>("sleeping"));
    EXPECT_EQ(enum_from_string<JobKind>(to_string(JobKind::train)), JobKind::train);
}

}  // namespace
}  // namespace distilld::api
