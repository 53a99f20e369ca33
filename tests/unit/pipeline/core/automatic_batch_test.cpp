#include "pipeline/core/automatic_batch.hpp"

#include <gmock/gmock.h>

namespace distilld {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(AutomaticBatch, AnEpochHasSomeTensOfStepsWhereTheDataAllowIt) {
    for (const std::uint64_t rows : {1, 20, 63, 64, 86, 500, 5000, 1'000'000}) {
        const BatchWish wish{rows, 0, 0};
        const std::uint32_t batch = max_batch_size(wish);
        EXPECT_EQ(micro_batches_for(wish, batch), 1U) << rows;
        EXPECT_TRUE(batch == 1 || rows / batch >= kMinStepsOfEpoch) << rows << " rows in steps of " << batch;
        EXPECT_TRUE(batch == kMaxAutomaticSequences || rows / (2 * batch) < kMinStepsOfEpoch) << rows;
    }
    EXPECT_EQ(max_batch_size({86, 0, 0}), 2U);
    EXPECT_EQ(max_batch_size({86, 0, 4}), 1U) << "four micro-batches that the spec asks for";
    EXPECT_EQ(max_batch_size({5000, 0, 4}), 32U);
    EXPECT_EQ(max_batch_size({1'000'000, 0, 4}), 64U);
}

// Memory decides how a step is cut, and nothing else.
TEST(AutomaticBatch, AStepHasTheSameSequencesWhateverTheMemoryTakes) {
    const BatchWish wish{2000, 0, 0};
    for (const std::uint32_t batch : {1, 2, 4, 8, 16, 32}) {
        EXPECT_EQ(batch * micro_batches_for(wish, batch), 32U);
    }
    EXPECT_EQ(micro_batches_for({2000, 3, 0}, 3), 10U);
    EXPECT_EQ(micro_batches_for({2000, 128, 0}, 128), 1U);
    EXPECT_EQ(micro_batches_for({2000, 0, 7}, 2), 7U) << "as the spec says";
}

TEST(AutomaticBatch, SaysWhatIsUsedAndWhy) {
    EXPECT_EQ(describe({86, 0, 0}, 2, "there is memory for 1915"),
              "batch_size auto: 2, micro_batches auto: 1: a step has 2 sequences, and an epoch of 86 rows has 43 steps "
              "(no more, so that an epoch has at least 32 where the data allows it); there is memory for 1915");
    const std::string large = describe({1'000'000, 0, 4}, 16, "memory");
    EXPECT_THAT(large, HasSubstr("batch_size auto: 16: a step has 64 sequences, and an epoch of 1000000 rows has 15625 "
                                 "steps"));
    EXPECT_THAT(large, Not(HasSubstr("no more")));
    EXPECT_THAT(describe({1, 1, 0}, 1),
                HasSubstr("micro_batches auto: 1: a step has 1 sequence, and an epoch of 1 row has 1 "));
}

TEST(AutomaticBatch, TheLineOfTheRunSaysHowEpochsComeToSteps) {
    TrainingSpec training;
    training.batch_size = 25;
    training.micro_batches = 4;
    EXPECT_EQ(steps_line(training, 454, 10, false).message, "") << "max_steps";
    EXPECT_EQ(steps_line(training, 86, 10, false).level, "warn");
    EXPECT_THAT(steps_line(training, 86, 10, false).message,
                HasSubstr("/training/max_steps: a step takes 100 sequences, but the data has 86 rows"));
    training.epochs = 1;
    EXPECT_EQ(steps_line(training, 454, 5, true).message, "1 epoch of 454 rows: 5 steps of up to 100 sequences");
    training.epochs = 2.5;
    EXPECT_EQ(steps_line(training, 1, 3, true).message, "2.5 epochs of 1 row: 3 steps of up to 100 sequences");
    EXPECT_THAT(steps_line(training, 454, 11, false).message, HasSubstr("was started by an earlier version"));
}

TEST(AutomaticReplicas, AreOnePerThreadForASmallNetworkIfMicroBatchesAndMemorySuffice) {
    const ReplicaWish wish{4, 8, 1'000'000, 1 << 20, 1 << 30};
    EXPECT_EQ(automatic_replicas(wish), 4U);
    const auto with = [&wish](auto member, auto value) {
        ReplicaWish other = wish;
        other.*member = value;
        return automatic_replicas(other);
    };
    EXPECT_EQ(with(&ReplicaWish::threads, 1U), 1U);
    EXPECT_EQ(with(&ReplicaWish::threads, 0U), 1U);
    EXPECT_EQ(with(&ReplicaWish::threads, 64U), 8U);
    EXPECT_EQ(with(&ReplicaWish::micro_batches, 3U), 3U);
    EXPECT_EQ(with(&ReplicaWish::micro_batches, 1U), 1U);
    EXPECT_EQ(with(&ReplicaWish::parameters, kMaxParametersOfReplicas), 4U);
    EXPECT_EQ(with(&ReplicaWish::parameters, kMaxParametersOfReplicas + 1), 1U);
    EXPECT_EQ(with(&ReplicaWish::available_bytes, std::uint64_t{6} << 20), 3U) << "half of it";
    EXPECT_EQ(with(&ReplicaWish::available_bytes, std::uint64_t{0}), 1U) << "not known";
    EXPECT_EQ(with(&ReplicaWish::activation_bytes, std::uint64_t{0}), 4U);
    EXPECT_EQ(automatic_replicas({64, 64, 1, 0, 1 << 30}), kMaxReplicas);
}

}  // namespace
}  // namespace distilld
