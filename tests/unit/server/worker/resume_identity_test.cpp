#include "server/worker/resume_identity.hpp"

#include <gtest/gtest.h>

namespace distilld {
namespace {

JobSpec spec_of_a_run() {
    JobSpec spec;
    spec.student.model = "student";
    spec.dataset.train = "data.jsonl";
    spec.dataset.sequence_length = 8;
    spec.training.max_steps = 10;
    spec.training.threads = 2;
    spec.output = "out";
    return spec;
}

std::string refusal(const JobSpec& spec, const std::string& hash = "hash") {
    const Result<void> same = check_run_identity(make_run_identity(spec_of_a_run(), "hash"), spec, hash);
    return same ? "" : same.error().message;
}

TEST(ResumeIdentity, ARunMayBeProlongedAndMoved) {
    JobSpec spec = spec_of_a_run();
    spec.training.max_steps = 20;
    spec.output = "elsewhere";
    spec.training.overlap_optimizer = false;
    EXPECT_EQ(refusal(spec), "");
}

TEST(ResumeIdentity, WhatDecidesTheWeightsMustBeTheSame) {
    JobSpec spec = spec_of_a_run();
    spec.training.learning_rate *= 2;
    EXPECT_EQ(refusal(spec).find("/training/learning_rate: is "), 0U) << refusal(spec);
    EXPECT_EQ(refusal(spec_of_a_run(), "other").find("/dataset/train: "), 0U);
    EXPECT_NE(check_run_identity("no JSON", spec, "hash").error().message, "");
}

TEST(ResumeIdentity, AnotherNumberOfThreadsIsSaid) {
    JobSpec spec = spec_of_a_run();
    const std::string identity = make_run_identity(spec, "hash");
    EXPECT_FALSE(threads_warning(identity, spec));
    spec.training.threads = 4;
    EXPECT_EQ(refusal(spec), "") << "no reason to refuse";
    ASSERT_TRUE(threads_warning(identity, spec));
    EXPECT_EQ(threads_warning(identity, spec)->find("/training/threads: is 4, but the checkpoint was made with 2"), 0U);
}

TEST(ResumeIdentity, TheProbedBatchSizeIsTakenOver) {
    JobSpec spec = spec_of_a_run();
    spec.training.batch_size = 16;
    const std::string identity = make_run_identity(spec, "hash");
    spec.training.batch_size = 1;
    spec.training.batch_size_auto = true;
    adopt_batch_size(identity, spec);
    EXPECT_EQ(spec.training.batch_size, 16U);
    EXPECT_FALSE(spec.training.batch_size_auto);
}

}  // namespace
}  // namespace distilld
