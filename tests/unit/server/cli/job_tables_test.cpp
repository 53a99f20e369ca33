#include "server/cli/jobs/job_tables.hpp"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

namespace distilld::cli {
namespace {

namespace json = boost::json;

TEST(JobTables, Jobs) {
    const auto text = jobs_table(json::parse(
        R"({"data":[{"id":"job-1","state":"running","name":"n","progress":{"step":2,"total_steps":8,"loss":1.5},
            "status_reason":{"code":"disk_full","message":"m","since":"then"}},
            {"id":"job-0","state":"failed","name":"m"}]})"));
    ASSERT_TRUE(text);
    EXPECT_EQ(*text,
              "ID                            STATE       STEP             LOSS      NAME\n"
              "job-1                         running     2/8              1.500000  n  (waits since then: disk_full)\n"
              "job-0                         failed      -                -         m\n");
    EXPECT_FALSE(jobs_table(json::parse(R"({"data":[{"id":"job-1"}]})")));
}

TEST(JobTables, WideListsWhatIsAskedInAGlance) {
    const auto text = wide_jobs_table(json::parse(
        R"({"data":[{"id":"job-1","state":"running","name":"n","priority":7,"slot":1,"owner":"ops","eval_loss":2.5,
            "created_at":"2026-01-31T12:34:56.789Z","progress":{"step":2,"total_steps":8,"loss":1.5,
            "tokens_per_second":12345,"seconds_remaining":61}},
            {"id":"job-0","state":"failed","name":"m","progress":{"step":0,"total_steps":0,"loss":null,
            "seconds_remaining":5}}]})"));
    ASSERT_TRUE(text);
    EXPECT_EQ(
        *text,
        "ID                            STATE       STEP             DONE  LOSS      EVAL CE   TOK/S     ETA       "
        "PRIO  SLOT  OWNER         CREATED                   NAME\n"
        "job-1                         running     2/8              25%   1.500000  2.500000  12.3k     1m01s     "
        "7     1     ops           2026-01-31T12:34:56.789Z  n\n"
        "job-0                         failed      0/0              -     nan       -         0         -         "
        "0     -     -                                       m\n");
    EXPECT_FALSE(wide_jobs_table(json::parse("{}")));
}

TEST(JobTables, OneJob) {
    api::Job job;
    job.id = "job-1";
    job.state = api::JobState::paused;
    job.status_reason = {"paused_by_user", "paused after a checkpoint"};
    job.priority = -3;
    job.max_concurrent = 2;
    job.metadata = {{"team", "red"}};
    job.dtype = "bf16";
    job.eval_kl = 0.5;
    job.eval_top1_agreement = 0.25;
    job.eval_acceptance_rate = 0.5;
    EXPECT_EQ(job_text(job),
              "id            job-1\n"
              "state         paused\n"
              "reason        paused_by_user: paused after a checkpoint\n"
              "priority      -3\n"
              "in flight     at most 2, which was set later\n"
              "metadata      team=red\n"
              "dtype         bf16\n"
              "held-out KL   0.500000 nats/token\n"
              "eval top-1    0.250000\n"
              "acceptance    50.0% (1.9 tokens per teacher pass with 4 drafted)\n");
}

TEST(JobTables, TasksNameOneAnother) {
    api::Job job;
    job.id = "job-1";
    job.task = 0;
    job.tasks = {"job-1", "job-2"};
    EXPECT_NE(job_text(job).find("task          0\ntasks         job-1\ntasks         job-2\n"), std::string::npos);
    job.task = 1;
    job.task_of = "job-1";
    job.tasks.clear();
    EXPECT_NE(job_text(job).find("task          1 of job-1\n"), std::string::npos);
}

TEST(JobTables, Checkpoints) {
    const auto text = checkpoints_table(json::parse(
        R"({"data":[{"number":1,"step":10,"folder":"/c/10","seconds":1,"created_at":"then","bytes":2500000},
            {"number":2,"step":20,"folder":"/c/20","seconds":1,"created_at":null,"bytes":null}]})"));
    ASSERT_TRUE(text);
    EXPECT_EQ(*text,
              "STEP        MB          CREATED                   FOLDER\n"
              "10          2.5         then                      /c/10\n"
              "20          -                                     /c/20\n");
}

TEST(JobTables, Metrics) {
    const auto text = metrics_table(json::parse(
        R"({"data":[{"name":"loss","total_points":900,"steps":[1,2,3,4],"values":[4,0.125,null,2]},
            {"name":"eval_kl","total_points":0,"steps":[],"values":[]}]})"));
    ASSERT_TRUE(text);
    EXPECT_EQ(*text,
              "METRIC                    POINTS    FIRST         LAST          MIN           MAX\n"
              "loss                      900       4             2             0.125         4\n"
              "eval_kl                   0         -             -             -             -\n");
}

TEST(JobTables, Nodes) {
    const auto text = nodes_table(json::parse(
        R"({"data":[{"name":"n1","state":"mixed","cores":8,"memory_mb":64000,"gpus":1,"jobs":["job-1","job-2"]},
            {"name":"n2","state":"idle","cores":8,"memory_mb":64000,"jobs":[]}]})"));
    ASSERT_TRUE(text);
    EXPECT_EQ(*text,
              "NODE                      STATE       CORES  MEMORY MB  GPUS  JOBS\n"
              "n1                        mixed       8      64000      1     job-1 job-2\n"
              "n2                        idle        8      64000      -     -\n");
    EXPECT_FALSE(nodes_table(json::parse(R"({"data":[1]})")));
}

TEST(JobTables, RefuseWhatIsNone) {
    for (const char* answer : {"[]", "{}", R"({"data":7})", "null"}) {
        EXPECT_FALSE(jobs_table(json::parse(answer))) << answer;
        EXPECT_FALSE(checkpoints_table(json::parse(answer))) << answer;
        EXPECT_FALSE(metrics_table(json::parse(answer))) << answer;
    }
    EXPECT_FALSE(checkpoints_table(json::parse(R"({"data":[1]})")));
    EXPECT_EQ(deleted_text(json::parse(R"({"id":"job-1","deleted":true})")).value(), "job-1 deleted\n");
    EXPECT_FALSE(deleted_text(json::parse("[]")));
}

}  // namespace
}  // namespace distilld::cli
