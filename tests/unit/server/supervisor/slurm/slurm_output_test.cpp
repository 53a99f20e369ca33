#include "server/supervisor/slurm/slurm_output.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "server/supervisor/worker_process.hpp"

namespace distilld::slurm {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> texts_of(const std::vector<QueueEntry>& entries) {
    std::vector<std::string> texts;
    for (const QueueEntry& entry : entries) {
        texts.push_back(std::to_string(entry.id) + " " + entry.state + " " + entry.nodes + " " + entry.why + " " +
                        entry.name);
    }
    return texts;
}

std::vector<std::string> texts_of(const std::vector<Node>& nodes) {
    std::vector<std::string> texts;
    for (const Node& node : nodes) {
        texts.push_back(node.name + " " + node.state + " " + std::to_string(node.cores) + " " +
                        std::to_string(node.memory_mb) + " " + std::to_string(node.gpus));
    }
    return texts;
}

TEST(SlurmOutput, TheIdOfASubmittedJob) {
    EXPECT_EQ(read_job_id("12\n").value(), 12);
    EXPECT_EQ(read_job_id("12;cluster\n").value(), 12);
    for (const char* text : {"", "\n", "0\n", "-1", "job 12", "12x", "99999999999999999999"}) {
        EXPECT_THAT(read_job_id(text).error().message, HasSubstr("sbatch printed no job id")) << text;
    }
}

TEST(SlurmOutput, JobsOfSqueue) {
    // Printed by squeue 22.05.8.
    EXPECT_THAT(texts_of(read_queue("4|PENDING||Resources|distilld-job-1\n"
                                    "3|RUNNING|n[1-2]|None|distilld-job-2\n"
                                    "1|COMPLETED|n1|None|a|b\n")),
                ElementsAre("4 PENDING  Resources distilld-job-1", "3 RUNNING n[1-2] None distilld-job-2",
                            "1 COMPLETED n1 None a|b"));
}

TEST(SlurmOutput, LinesThatAreNoJobsAreLeftOut) {
    EXPECT_THAT(read_queue(""), IsEmpty());
    EXPECT_THAT(texts_of(read_queue(
                    "slurm: warning\n|RUNNING|n1|None|x\n99999999999999999999|RUNNING|n1|None|x\n5|RUNNING|n1|None\n"
                    "6||n1|None|x\n7|RUN NING|n1|None|x\n-8|RUNNING|n1|None|x\n9|RUNNING|n1|None|\xff\n")),
                ElementsAre("9 RUNNING n1 None \xEF\xBF\xBD"));
}

TEST(SlurmOutput, TheRecordOfAJob) {
    // Printed by scontrol 22.05.8, shortened.
    const auto record = read_record(
        "JobId=3 JobName=distilld-job-1 UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901757 "
        "JobState=FAILED Reason=NonZeroExitCode Dependency=(null) Requeue=0 Restarts=0 BatchFlag=1 "
        "ExitCode=7:0 RunTime=00:00:01 \n");
    ASSERT_TRUE(record);
    EXPECT_EQ(record->state, "FAILED");
    EXPECT_EQ(record->exit_code, 7);
    EXPECT_EQ(record->signal, 0);
    const auto killed = read_record("JobId=3 JobState=CANCELLED ExitCode=0:15");
    ASSERT_TRUE(killed);
    EXPECT_EQ(killed->signal, 15);
    EXPECT_EQ(read_record("JobId=3 JobState=RUNNING ExitCode=99999999999:x")->exit_code, 0);
    EXPECT_FALSE(read_record(""));
    EXPECT_FALSE(read_record("slurm_load_jobs error: Invalid job id specified"));
    EXPECT_FALSE(read_record("JobId=3 JobState= ExitCode=0:0"));
}

TEST(SlurmOutput, NodesOfSinfo) {
    // n1 is in two partitions. Resources as gres.conf(5) and sinfo(1) describe them.
    EXPECT_THAT(texts_of(read_nodes("n1|mixed|2|1|(null)\nn1|mixed|2|1|(null)\nn2|idle*|64|257000|gpu:a100:4(S:0-1)\n"
                                    "n3|down*|8|1000|gpu:2,shard:8,gpu:t4:1(S:0,1)\nn4|allocated+|8|1000|gpu\n"
                                    "n5|mixed-|8|1000|gpux:3,nvme:gpu:4\n")),
                ElementsAre("n1 mixed 2 1 0", "n2 not_responding 64 257000 4", "n3 down 8 1000 3",
                            "n4 allocated 8 1000 1", "n5 mixed 8 1000 0"));
}

TEST(SlurmOutput, LinesThatAreNoNodesAreLeftOut) {
    EXPECT_THAT(read_nodes(""), IsEmpty());
    EXPECT_THAT(read_nodes("sinfo: error\nn1|idle|2|1\nn1|idle|99999999999|1|\nn1|idle|2|99999999999999999999|\n"
                           "n1|idle|2|1+|\n|idle|2|1|\nn\x01|idle|2|1|\nn1||2|1|\nn1|*|2|1|\n" +
                           std::string(300, 'n') + "|idle|2|1|\n"),
                IsEmpty());
    EXPECT_THAT(texts_of(read_nodes("n1|idle|2|1|gpu:4294967295,gpu:4294967295,gpu:99999999999\n")),
                ElementsAre("n1 idle 2 1 4294967295"));
}

TEST(SlurmOutput, ListsOfHosts) {
    // As `scontrol show hostnames` of 22.05.8 writes them out.
    EXPECT_THAT(read_host_list("n1"), ElementsAre("n1"));
    EXPECT_THAT(read_host_list("n[1-2],b,c[08-10,2]"), ElementsAre("n1", "n2", "b", "c08", "c09", "c10", "c2"));
    EXPECT_THAT(read_host_list("r[0-1]n[1,3]"), ElementsAre("r0n1", "r0n3", "r1n1", "r1n3"));
    EXPECT_EQ(read_host_list("n[1-65536]").size(), kMaxHosts);
    for (const char* list : {"", ",", "n[", "n[]", "n[1", "n[2-1]", "n[a]", "n[1-]", "n[1-65537]", "n[0-4294967295]",
                             "n[1-300]m[1-300]", "n[1-40000],m[1-40000]", "n 1", "n1,,n2", "n[0000000001]", "n]"}) {
        EXPECT_THAT(read_host_list(list), IsEmpty()) << list;
    }
}

TEST(SlurmState, EndsHaveAKindAndWords) {
    const auto end = [](const char* state, int exit_code = 0, int signal = 0) {
        return end_of(12, JobRecord{state, exit_code, signal}, "/logs/a");
    };
    EXPECT_EQ(end("TIMEOUT").words, "Slurm job 12 reached its time limit");
    EXPECT_EQ(end("TIMEOUT").cause, EndCause::time_limit);
    EXPECT_EQ(end("PREEMPTED").cause, EndCause::preempted);
    EXPECT_EQ(end("NODE_FAIL").cause, EndCause::node);
    EXPECT_EQ(end("CANCELLED", 0, 15).words, "Slurm job 12 was cancelled");
    EXPECT_EQ(end("CANCELLED", 1).words, "Slurm job 12 was cancelled") << "its command was on its way";
    EXPECT_EQ(end("CANCELLED").cause, EndCause::cancelled);
    EXPECT_STREQ(end("OUT_OF_MEMORY", 0, 125).failure_kind(), kWorkerOutOfMemory);
    EXPECT_STREQ(end("BOOT_FAIL").failure_kind(), kWorkerNotStarted);
    EXPECT_STREQ(end("NODE_FAIL").failure_kind(), kWorkerKilled);
    EXPECT_EQ(end("COMPLETED").words, "Slurm job 12 has ended; its output is in /logs/a");
    EXPECT_EQ(end("FAILED", 127).words, "Slurm job 12 failed with exit code 127; its output is in /logs/a");
    EXPECT_EQ(end("FAILED", 0, 9).words, "Slurm job 12 failed by signal 9; its output is in /logs/a");
    EXPECT_EQ(end_of(12, std::nullopt, "").words, "Slurm job 12 has ended, and Slurm does not know it any more");
}

TEST(SlurmState, OnlyKnownStatesAreEnds) {
    for (const char* state :
         {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "REQUEUED",
          "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT", "STAGE_OUT", "RESIZING", "EXPEDITING", ""}) {
        EXPECT_FALSE(is_end(state)) << state;
    }
    for (const char* state : {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
                              "PREEMPTED", "TIMEOUT"}) {
        EXPECT_TRUE(is_end(state)) << state;
    }
}

}  // namespace
}  // namespace distilld::slurm
