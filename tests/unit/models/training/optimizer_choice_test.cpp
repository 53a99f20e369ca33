#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "models/checkpoint/store.hpp"
#include "models/training/causal_lm_student.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/models/training/small_student.hpp"

/// What holds of a student whichever optimizer it has.
namespace distilld::models {
namespace {

using test::make;
using test::train_step;
using test::weights_hash;
using testing::HasSubstr;

class OptimizerChoice : public testing::TestWithParam<OptimizerKind> {
  protected:
    /// Large enough that its matrices have 8-bit state.
    static CausalLmStudentOptions options(OptimizerKind kind = GetParam()) {
        CausalLmStudentOptions made = test::random_options();
        made.student.config_json = test::config_json(/*tied=*/true, /*hidden=*/128);
        made.training.optimizer = kind;
        made.training.sgd_momentum = kind == OptimizerKind::sgd ? 0.9 : 0.0;
        return made;
    }
};

INSTANTIATE_TEST_SUITE_P(Student, OptimizerChoice,
                         testing::Values(OptimizerKind::adamw, OptimizerKind::adamw_8bit, OptimizerKind::sgd),
                         [](const auto& chosen) { return std::string(to_string(chosen.param)); });

TEST_P(OptimizerChoice, ACheckpointContinuesToTheSameBits) {
    const test::TemporaryFolder folder;
    CheckpointStore store(folder / "checkpoints", 2);
    const auto uninterrupted = make(options());
    const auto first = make(options());
    for (std::uint64_t step = 0; step < 3; ++step) {
        train_step(*uninterrupted, step);
        train_step(*first, step);
    }
    const std::filesystem::path committed = store.commit(3, *first->snapshot({})).value();
    CausalLmStudentOptions changed = options();
    changed.training.seed = 99;
    changed.training.overlap_optimizer = false;  // neither changes a bit
    changed.training.gradient_checkpointing = true;
    const auto second = make(changed);
    const Result<RunState> restored = second->restore(committed);
    ASSERT_TRUE(restored) << restored.error().message;
    for (std::uint64_t step = 3; step < 6; ++step) {
        train_step(*uninterrupted, step);
        train_step(*second, step);
    }
    EXPECT_EQ(weights_hash(*uninterrupted), weights_hash(*second));
}

TEST_P(OptimizerChoice, ForwardSeesTheUpdateAlsoInBf16) {
    // A student keeps its weights in bf16 between steps; one that was just restored has nothing kept.
    const test::TemporaryFolder folder;
    CheckpointStore store(folder / "checkpoints", 1);
    CausalLmStudentOptions narrow = options();
    narrow.student.dtype = Dtype::bf16;
    const auto trained = make(narrow);
    const auto batch = test::token_batch(0, 4);
    const double before = trained->evaluate(*batch).ce_sum;
    train_step(*trained, 0, 0.1);
    const std::filesystem::path committed = store.commit(1, *trained->snapshot({})).value();
    const auto restored = make(narrow);
    EXPECT_EQ(restored->evaluate(*batch).ce_sum, before);
    ASSERT_TRUE(restored->restore(committed));
    const double after = trained->evaluate(*batch).ce_sum;
    EXPECT_NE(after, before);
    EXPECT_EQ(restored->evaluate(*batch).ce_sum, after);
}

TEST_P(OptimizerChoice, TheLossFalls) {
    CausalLmStudentOptions plain = options();
    plain.with_teacher = false;
    plain.training.kd_ratio = 0;
    const auto student = make(plain);
    const auto batch = test::token_batch(0, 4);
    const double before = student->evaluate(*batch).ce_sum;
    for (int step = 0; step < 30; ++step) {
        EXPECT_TRUE(train_step(*student, 0, GetParam() == OptimizerKind::sgd ? 0.3 : 3e-3, test::Teacher::none).finite);
    }
    EXPECT_LT(student->evaluate(*batch).ce_sum, 0.7 * before);
}

TEST_P(OptimizerChoice, ANonFiniteStepLeavesWeightsAndStateAlone) {
    const auto student = make(options());
    const auto reference = make(options());
    train_step(*student, 0);
    train_step(*reference, 0);
    const auto tokens = test::token_batch(0, 2);
    MicroBatch bad{tokens, test::teacher_targets(*tokens, 0, test::Teacher::logits), tokens->target_tokens};
    std::vector<float> values(tokens->labels.size() * test::kVocabulary, std::numeric_limits<float>::quiet_NaN());
    bad.targets->values.bytes = std::as_bytes(std::span(values));
    const auto staged = student->stage(std::move(bad));
    student->train(*staged);
    EXPECT_FALSE(student->finish_step(1e-2).finite);
    EXPECT_TRUE(train_step(*student, 1).finite);
    train_step(*reference, 1);
    EXPECT_EQ(weights_hash(*student), weights_hash(*reference));
}

// max_nonfinite_steps counts steps that say they are not finite: a student gone astray says so of each that follows.
TEST_P(OptimizerChoice, AStudentGoneAstrayIsSeenInEachStepThatFollows) {
    const auto student = make(options());
    EXPECT_TRUE(train_step(*student, 0, 1e30).finite);
    for (std::uint64_t step = 1; step < 5; ++step) {
        EXPECT_FALSE(train_step(*student, step, 1e30).finite) << step;
    }
}

TEST_P(OptimizerChoice, TheMemoryThatIsAskedForIsThatOfTheOptimizer) {
    CausalLmStudentOptions chosen = options();
    const std::uint64_t count = make(chosen)->parameter_count();
    const auto fits = [&](std::uint64_t bytes) {
        chosen.max_bytes = bytes;
        return static_cast<bool>(make_causal_lm_student(chosen));
    };
    const std::uint64_t embedding = 61 * 128;
    const std::uint64_t of_adamw = 16 * count;
    switch (GetParam()) {
        case OptimizerKind::adamw:
            EXPECT_TRUE(fits(of_adamw));
            EXPECT_FALSE(fits(of_adamw - 1));
            break;
        case OptimizerKind::adamw_8bit:
            EXPECT_TRUE(fits(8 * count + 8 * embedding + 3 * (count - embedding)));
            EXPECT_FALSE(fits(8 * count + 8 * embedding));
            break;
        case OptimizerKind::sgd:
            EXPECT_TRUE(fits(12 * count));
            EXPECT_FALSE(fits(12 * count - 1));
            break;
    }
    EXPECT_THAT(make_causal_lm_student(chosen).error().message,
                HasSubstr(std::string("to train with ") + to_string(GetParam())));
}

TEST(OptimizerState, AnotherOptimizersCheckpointIsRefused) {
    const test::TemporaryFolder folder;
    CheckpointStore store(folder / "checkpoints", 2);
    CausalLmStudentOptions options = test::random_options();
    options.student.config_json = test::config_json(true, 128);
    const std::filesystem::path committed = store.commit(1, *make(options)->snapshot({})).value();
    options.training.optimizer = OptimizerKind::adamw_8bit;
    const Result<RunState> refused = make(options)->restore(committed);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("optimizer.safetensors: tensor exp_avg"));
}

TEST(Losses, ReverseKlAndJsdTeachToo) {
    for (const double beta : {0.5, 1.0}) {
        CausalLmStudentOptions options = test::random_options();
        options.training.kd_ratio = 1.0;
        options.training.beta = beta;
        const auto student = make(options);
        const auto kd_of = [&] {
            const auto staged = student->stage(test::micro_batch(0, 2, test::Teacher::topk));
            student->train(*staged);
            return student->finish_step(0.0).kd_sum;
        };
        const double before = kd_of();
        for (int step = 0; step < 40; ++step) {
            train_step(*student, 0);
        }
        EXPECT_LT(kd_of(), 0.6 * before) << beta;
    }
}

}  // namespace
}  // namespace distilld::models
