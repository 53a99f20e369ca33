#include "models/training/causal_lm_student.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "tests/unit/models/training/small_student.hpp"

namespace distilld::models {
namespace {

using test::kColumns;
using test::kVocabulary;
using test::make;
using test::micro_batch;
using test::random_options;
using test::Teacher;
using test::teacher_targets;
using test::token_batch;
using test::train_step;
using test::weights_hash;
using testing::HasSubstr;

TEST(CausalLmStudent, TheOverlappedOptimizerGivesTheBitsOfTheSerialOne) {
    for (const bool tied : {true, false}) {
        CausalLmStudentOptions options = random_options(tied);
        options.training.overlap_optimizer = false;
        const auto serial = make(options);
        options.training.overlap_optimizer = true;
        const auto lazy = make(options);
        bool clipped = false;
        int pending = 0;
        for (std::uint64_t step = 0; step < 8; ++step) {
            const StepStats a = train_step(*serial, step);
            const StepStats b = train_step(*lazy, step);
            EXPECT_EQ(a.grad_norm, b.grad_norm);
            clipped = clipped || a.grad_norm > options.training.max_grad_norm;
            EXPECT_FALSE(serial->apply_one_pending_update());
            for (std::uint64_t i = 0; i < step % 5; ++i) {
                pending += lazy->apply_one_pending_update() ? 1 : 0;
            }
        }
        EXPECT_TRUE(clipped);
        EXPECT_GT(pending, 0);
        EXPECT_EQ(weights_hash(*serial), weights_hash(*lazy));
    }
}

TEST(CausalLmStudent, ParallelFalseMeansNoPendingUpdates) {
    CausalLmStudentOptions options = random_options();
    options.training.parallel = false;
    const auto student = make(options);
    train_step(*student, 0);
    EXPECT_FALSE(student->apply_one_pending_update());
}

TEST(CausalLmStudent, TheLossFalls) {
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
        for (const Teacher kind : {Teacher::none, Teacher::topk, Teacher::logits}) {
            CausalLmStudentOptions options = random_options();
            options.student.dtype = dtype;
            options.with_teacher = kind != Teacher::none;
            options.training.temperature = 2.0;
            const auto student = make(options);
            double first = 0;
            double last = 0;
            for (int step = 0; step < 40; ++step) {
                const auto staged = student->stage(micro_batch(0, 4, kind));
                const std::uint64_t tokens = student->train(*staged).target_tokens;
                const StepStats stats = student->finish_step(1e-2);
                const double mean = stats.loss_sum / static_cast<double>(tokens);
                EXPECT_EQ(stats.kd_sum > 0, kind != Teacher::none);
                EXPECT_GT(stats.ce_sum, 0);
                first = step == 0 ? mean : first;
                last = mean;
                EXPECT_TRUE(stats.finite);
            }
            EXPECT_LT(last, 0.6 * first) << "dtype " << static_cast<int>(dtype) << " teacher "
                                         << static_cast<int>(kind);
        }
    }
}

TEST(CausalLmStudent, MaskedPositionsCarryNoLoss) {
    for (const Teacher kind : {Teacher::topk, Teacher::logits}) {
        std::vector<std::string> hashes;
        std::vector<double> losses;
        for (const float noise : {0.0F, 3.0F}) {
            const auto student = make(random_options());
            const auto tokens = token_batch(0, 4);
            MicroBatch batch{tokens, teacher_targets(*tokens, 0, kind, noise), tokens->target_tokens};
            const auto staged = student->stage(std::move(batch));
            student->train(*staged);
            losses.push_back(student->finish_step(1e-2).loss_sum);
            hashes.push_back(weights_hash(*student));
        }
        EXPECT_EQ(losses[0], losses[1]);
        EXPECT_EQ(hashes[0], hashes[1]);
    }
}

TEST(CausalLmStudent, AMicroBatchWithoutTargetsChangesNothing) {
    const auto student = make(random_options());
    const auto reference = make(random_options());
    const auto empty = [] {
        auto tokens = token_batch(0, 2);
        std::fill(tokens->labels.begin(), tokens->labels.end(), kIgnoredLabel);
        tokens->target_tokens = 0;
        MicroBatch batch{tokens, teacher_targets(*tokens, 0, Teacher::topk), 0};
        return batch;
    };
    for (std::uint64_t step = 0; step < 2; ++step) {
        const auto staged = student->stage(empty());
        EXPECT_EQ(student->train(*staged).target_tokens, 0U);
        train_step(*student, step);
        train_step(*reference, step);
    }
    EXPECT_EQ(weights_hash(*student), weights_hash(*reference));
}

TEST(CausalLmStudent, ANonFiniteStepIsSkipped) {
    for (const bool overlap : {false, true}) {
        CausalLmStudentOptions options = random_options();
        options.training.overlap_optimizer = overlap;
        const auto student = make(options);
        const auto reference = make(options);
        train_step(*student, 0);
        train_step(*reference, 0);

        const auto tokens = token_batch(0, 2);
        MicroBatch bad{tokens, teacher_targets(*tokens, 0, Teacher::logits), tokens->target_tokens};
        std::vector<float> values(tokens->labels.size() * kVocabulary, std::numeric_limits<float>::quiet_NaN());
        bad.targets->values.bytes = std::as_bytes(std::span(values));
        const auto staged = student->stage(std::move(bad));
        student->train(*staged);
        const StepStats stats = student->finish_step(1e-2);
        EXPECT_FALSE(stats.finite);
        EXPECT_FALSE(std::isfinite(stats.grad_norm));

        // As if it had never been: weights, moments and step count.
        EXPECT_TRUE(train_step(*student, 1).finite);
        train_step(*reference, 1);
        EXPECT_EQ(weights_hash(*student), weights_hash(*reference));
    }
}

TEST(CausalLmStudent, AStepWithoutTargetsIsNoStepOfTheOptimizer) {
    for (const bool overlap : {false, true}) {
        CausalLmStudentOptions options = random_options();
        options.training.overlap_optimizer = overlap;
        const auto student = make(options);
        const auto reference = make(options);
        for (std::uint64_t step = 0; step < 3; ++step) {
            train_step(*student, step);
            train_step(*reference, step);
            auto tokens = token_batch(0, 2);
            std::fill(tokens->labels.begin(), tokens->labels.end(), kIgnoredLabel);
            tokens->target_tokens = 0;
            const auto staged = student->stage({tokens, teacher_targets(*tokens, 0, Teacher::topk), 0});
            student->train(*staged);
            const StepStats stats = student->finish_step(1e-2);
            EXPECT_TRUE(stats.finite);
            EXPECT_EQ(stats.grad_norm, 0);
        }
        EXPECT_EQ(weights_hash(*student), weights_hash(*reference));
    }
}

TEST(CausalLmStudent, ALearningRateFarTooLargeIsSeenInTheNextSteps) {
    const auto student = make(random_options());
    EXPECT_TRUE(train_step(*student, 0, 1e30).finite);
    EXPECT_FALSE(train_step(*student, 1, 1e30).finite);
    EXPECT_FALSE(train_step(*student, 2, 1e30).finite);
}

TEST(CausalLmStudent, WhatTheTeacherSaysOfHeldOutRowsLeavesTheirCrossEntropyAsItIs) {
    CausalLmStudentOptions options = random_options();
    options.training.temperature = 2.0;
    const auto student = make(options);
    const EvalStats alone = student->evaluate(*token_batch(40, 4));
    EXPECT_EQ(alone.teacher_tokens, 0U);
    for (const Teacher kind : {Teacher::topk, Teacher::logits}) {
        MicroBatch batch = micro_batch(40, 4, kind);
        const EvalStats whole = student->evaluate(batch);
        EXPECT_EQ(whole.ce_sum, alone.ce_sum);
        EXPECT_EQ(whole.target_tokens, alone.target_tokens);
        EXPECT_EQ(whole.teacher_tokens, alone.target_tokens);
        EXPECT_GT(whole.kl_sum, 0);
        EXPECT_EQ(make(random_options())->evaluate(batch).kl_sum, whole.kl_sum) << "at temperature 1 in any run";

        std::vector<std::byte> given(std::size_t{4} * kColumns, std::byte{1});
        batch.targets->loss_mask = {ElementType::u8, given};
        const EvalStats all_given = student->evaluate(batch);
        EXPECT_EQ(all_given.ce_sum, alone.ce_sum);
        EXPECT_EQ(all_given.kl_sum, whole.kl_sum);
        EXPECT_EQ(all_given.agreeing, whole.agreeing);
        EXPECT_EQ(all_given.accepted, whole.accepted);

        // Of rows that it did not give there is a cross entropy, and nothing else.
        std::fill(given.begin(), given.begin() + 2 * kColumns, std::byte{0});
        const EvalStats half = student->evaluate(batch);
        EXPECT_EQ(half.ce_sum, alone.ce_sum);
        EXPECT_EQ(half.target_tokens, alone.target_tokens);
        EXPECT_EQ(half.teacher_tokens, token_batch(42, 2)->target_tokens);
        EXPECT_NEAR(half.kl_sum, student->evaluate(micro_batch(42, 2, kind)).kl_sum, 1e-4 * half.kl_sum);
    }
}

TEST(CausalLmStudent, EvaluationIsTheMeanCrossEntropyAndAppliesWhatIsPending) {
    const auto student = make(random_options());
    const auto batch = token_batch(40, 4);
    const EvalStats before = student->evaluate(*batch);
    EXPECT_EQ(before.target_tokens, batch->target_tokens);
    EXPECT_NEAR(before.ce_sum / static_cast<double>(before.target_tokens), std::log(61.0), 1.0);
    CausalLmStudentOptions options = random_options();
    options.with_teacher = false;
    const auto plain = make(options);
    const auto staged = plain->stage(micro_batch(40, 4, Teacher::none));
    plain->train(*staged);
    EXPECT_EQ(plain->finish_step(0.0).ce_sum, before.ce_sum);

    train_step(*student, 0);
    const EvalStats after = student->evaluate(*batch);
    EXPECT_NE(after.ce_sum, before.ce_sum);
    EXPECT_FALSE(student->apply_one_pending_update());
}

TEST(CausalLmStudent, BadOptionsAreNamed) {
    const auto message = [](const CausalLmStudentOptions& options) {
        const auto student = make_causal_lm_student(options);
        return student ? std::string("no error") : student.error().message;
    };
    CausalLmStudentOptions options = random_options();
    options.sequence_length = 33;
    EXPECT_THAT(message(options),
                HasSubstr("/dataset/sequence_length: 33 exceeds the student's max_position_embeddings of 32"));
    options = random_options();
    options.student.config_json.reset();
    EXPECT_THAT(message(options), HasSubstr("/student: config or model is required"));
    options.student.init = StudentInit::pretrained;
    EXPECT_THAT(message(options), HasSubstr("/student/model: is required"));
    options.student.model = "/no/such/folder";
    EXPECT_THAT(message(options), HasSubstr("/no/such/folder"));
    options.student.init = StudentInit::random;
    EXPECT_THAT(message(options), HasSubstr("/no/such/folder"));
    options = random_options();
    options.student.config_json = R"({"hidden_size": 33, "num_attention_heads": 4})";
    EXPECT_THAT(message(options), HasSubstr("/student/config/hidden_size: is 33"));
    options = random_options();
    options.student.device = "toaster";
    EXPECT_THAT(message(options), HasSubstr("/student/device: is \"toaster\""));
    options.student.device = "cuda:999";
    EXPECT_THAT(message(options), HasSubstr("/student/device: is \"cuda:999\""));
    options.student.device = "cpu";
    EXPECT_EQ(message(options), "no error");
}

TEST(CausalLmStudent, ANetworkThatCannotFitIsRefusedBeforeItIsAllocated) {
    CausalLmStudentOptions options = random_options();
    const std::uint64_t count = make(options)->parameter_count();
    options.max_bytes = 16 * count;
    EXPECT_TRUE(make_causal_lm_student(options));
    options.max_bytes = 16 * count - 1;
    const auto refused = make_causal_lm_student(options);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("/student/config: a network of " + std::to_string(count) +
                                                   " parameters takes 0.0 GiB to train"));
    // 3 TiB of weights.
    options.max_bytes = std::uint64_t{1} << 40;
    options.student.config_json = R"({"vocab_size": 16000000, "hidden_size": 65536, "num_attention_heads": 1024,
        "intermediate_size": 1024, "num_hidden_layers": 1, "tie_word_embeddings": true})";
    const auto huge = make_causal_lm_student(options);
    ASSERT_FALSE(huge);
    EXPECT_THAT(huge.error().message, HasSubstr("but the device has 1024.0 GiB"));
}

}  // namespace
}  // namespace distilld::models
