#include "models/training/staging.hpp"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "models/training/teacher_head_tensor.hpp"

namespace distilld::models {
namespace {

using testing::HasSubstr;

/// Bytes at an odd address, as inside a response body.
template <class T>
struct Unaligned {
    explicit Unaligned(const std::vector<T>& values) : bytes(values.size() * sizeof(T) + 1) {
        std::memcpy(bytes.data() + 1, values.data(), values.size() * sizeof(T));
    }
    [[nodiscard]] std::span<const std::byte> view() const { return std::span<const std::byte>(bytes).subspan(1); }
    std::vector<std::byte> bytes;
};

/// Two rows of three positions; the last of each row carries no loss. k = 2, V = 10.
struct Example {
    Example() {
        auto batch = std::make_shared<TokenBatch>();
        batch->number = 17;
        batch->rows = 2;
        batch->columns = 3;
        batch->input_ids = {1, 2, 3, 4, 5, 6};
        batch->labels = {2, 3, kIgnoredLabel, 5, 6, kIgnoredLabel};
        batch->lengths = {3, 3};
        batch->target_tokens = 4;
        tokens = batch;
    }

    MicroBatch topk() const {
        MicroBatch batch{tokens, TeacherTargets{}, 9};
        batch.targets->kind = TeacherTargets::Kind::topk;
        batch.targets->rows = 2;
        batch.targets->columns = 3;
        batch.targets->width = 2;
        batch.targets->ids = {ElementType::i32, ids.view()};
        batch.targets->values = {ElementType::f16, values.view()};
        batch.targets->tail = {ElementType::f32, tail.view()};
        return batch;
    }

    std::shared_ptr<const TokenBatch> tokens;
    Unaligned<std::int32_t> ids{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 9}};
    Unaligned<c10::Half> values{std::vector<c10::Half>(12, c10::Half(std::log(0.25F)))};
    Unaligned<float> tail{std::vector<float>(6, std::log(0.5F))};
    StagingOptions options{10, true, 1.0, torch::kCPU};
};

template <class F>
std::string message_of(F&& call) {
    try {
        call();
    } catch (const ErrorException& error) {
        return error.what();
    }
    return "no error";
}

TEST(Staging, KeepsTheRowsThatCarryLoss) {
    const Example example;
    const auto staged = stage_micro_batch(example.topk(), example.options);
    EXPECT_EQ(staged->target_tokens, 4U);
    EXPECT_EQ(staged->step_target_tokens, 9U);
    EXPECT_TRUE(torch::equal(staged->input_ids, torch::tensor({{1, 2, 3}, {4, 5, 6}}, torch::kLong)));
    EXPECT_TRUE(torch::equal(staged->rows, torch::tensor({0, 1, 3, 4}, torch::kLong)));
    EXPECT_TRUE(torch::equal(staged->targets.labels, torch::tensor({2, 3, 5, 6}, torch::kLong)));
    EXPECT_TRUE(torch::equal(staged->targets.topk_ids, torch::tensor({{0, 1}, {2, 3}, {6, 7}, {8, 9}}, torch::kLong)));
    EXPECT_TRUE(torch::allclose(staged->targets.topk_probabilities, torch::full({4, 2}, 0.25), 1e-3));
    EXPECT_TRUE(torch::allclose(staged->targets.tail_probability, torch::full({4}, 0.5), 1e-3));
}

TEST(Staging, ReadsEveryElementType) {
    const Example example;
    MicroBatch batch = example.topk();
    const auto wanted = stage_micro_batch(batch, example.options);
    const std::vector<float> exact(12, static_cast<float>(c10::Half(std::log(0.25F))));
    const Unaligned<float> f32(exact);
    const Unaligned<std::uint32_t> u32({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 9});
    const Unaligned<std::int64_t> i64({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 9});
    for (const ArrayView& ids : {ArrayView{ElementType::u32, u32.view()}, ArrayView{ElementType::i64, i64.view()}}) {
        batch.targets->ids = ids;
        batch.targets->values = {ElementType::f32, f32.view()};
        const auto staged = stage_micro_batch(batch, example.options);
        EXPECT_TRUE(torch::equal(staged->targets.topk_ids, wanted->targets.topk_ids));
        EXPECT_TRUE(torch::equal(staged->targets.topk_probabilities, wanted->targets.topk_probabilities));
    }
    const Unaligned<c10::BFloat16> bf16(std::vector<c10::BFloat16>(12, c10::BFloat16(std::log(0.25F))));
    batch.targets->values = {ElementType::bf16, bf16.view()};
    EXPECT_TRUE(torch::allclose(stage_micro_batch(batch, example.options)->targets.topk_probabilities,
                                torch::full({4, 2}, 0.25), 1e-2));
}

TEST(Staging, TakesFullLogitsInTheirOwnType) {
    const Example example;
    std::vector<c10::Half> values;
    for (int i = 0; i < 60; ++i) {
        values.emplace_back(static_cast<float>(i));
    }
    const Unaligned<c10::Half> logits(values);
    MicroBatch batch = example.topk();
    batch.targets->kind = TeacherTargets::Kind::logits;
    batch.targets->width = 10;
    batch.targets->values = {ElementType::f16, logits.view()};
    const auto staged = stage_micro_batch(batch, example.options);
    EXPECT_EQ(staged->targets.teacher_logits.scalar_type(), torch::kHalf);
    const torch::Tensor all = torch::arange(60, torch::kFloat).view({6, 10});
    EXPECT_TRUE(torch::equal(staged->targets.teacher_logits.to(torch::kFloat), all.index_select(0, staged->rows)));

    auto full = std::make_shared<TokenBatch>(*example.tokens);
    full->labels = {2, 3, 4, 5, 6, 7};
    batch.tokens = full;
    const auto every = stage_micro_batch(batch, example.options);
    EXPECT_FALSE(every->rows.defined());
    EXPECT_TRUE(torch::equal(every->targets.teacher_logits.to(torch::kFloat), all));
}

TEST(Staging, TakesHiddenStatesWithTheHead) {
    Example example;
    std::vector<c10::BFloat16> values;
    for (int i = 0; i < 18; ++i) {
        values.emplace_back(static_cast<float>(i));
    }
    const Unaligned<c10::BFloat16> hidden(values);
    MicroBatch batch = example.topk();
    batch.targets->kind = TeacherTargets::Kind::hidden_states;
    batch.targets->width = 3;
    batch.targets->values = {ElementType::bf16, hidden.view()};
    example.options.teacher_head = torch::ones({10, 3});
    const auto staged = stage_micro_batch(batch, example.options);
    EXPECT_TRUE(staged->targets.has_teacher());
    EXPECT_EQ(staged->targets.teacher_hidden.scalar_type(), torch::kBFloat16);
    EXPECT_TRUE(staged->targets.teacher_head.is_same(example.options.teacher_head));
    const torch::Tensor all = torch::arange(18, torch::kFloat).view({6, 3});
    EXPECT_TRUE(torch::equal(staged->targets.teacher_hidden.to(torch::kFloat), all.index_select(0, staged->rows)));
    example.options.teacher_head = torch::ones({10, 4});
    EXPECT_THAT(message_of([&] { stage_micro_batch(batch, example.options); }),
                HasSubstr("3 values, its head takes 4"));
}

TEST(TeacherHeadTensor, IsInTheTypeThatTheStudentMultipliesIn) {
    std::vector<c10::BFloat16> values;
    for (int i = 0; i < 12; ++i) {
        values.emplace_back(0.25F * static_cast<float>(i));
    }
    const Unaligned<c10::BFloat16> bytes(values);
    TeacherHead head;
    head.rows = 4;
    head.columns = 3;
    head.values = {ElementType::bf16, bytes.view()};
    const torch::Tensor wanted = 0.25 * torch::arange(12, torch::kFloat).view({4, 3});
    for (const auto& [student, type] :
         {std::pair{ComputeDtype::fp32, torch::kFloat}, std::pair{ComputeDtype::bf16, torch::kBFloat16},
          std::pair{ComputeDtype::fp64, torch::kDouble}}) {
        const torch::Tensor tensor = teacher_head_tensor(head, student, torch::kCPU);
        EXPECT_EQ(tensor.scalar_type(), type);
        EXPECT_TRUE(torch::equal(tensor.to(torch::kFloat), wanted));
    }
    // One in fp32 or fp16 would lose digits in bf16.
    const Unaligned<float> wide(std::vector<float>(12, 1.001F));
    head.values = {ElementType::f32, wide.view()};
    const torch::Tensor kept = teacher_head_tensor(head, ComputeDtype::bf16, torch::kCPU);
    EXPECT_TRUE(torch::equal(kept, torch::full({4, 3}, 1.001F)));
}

TEST(Staging, RowsThatTheTeacherDidNotGiveCarryNoLoss) {
    const Example example;
    MicroBatch batch = example.topk();
    // Positions 0 and 4 are not given, so what stands there is not looked at: no token is number 77.
    const Unaligned<std::uint8_t> mask({0, 1, 1, 1, 0, 1});
    const Unaligned<std::int32_t> ids({77, 77, 2, 3, 4, 5, 6, 7, 77, 77, 0, 9});
    batch.targets->loss_mask = {ElementType::u8, mask.view()};
    batch.targets->ids.bytes = ids.view();
    const auto topk = stage_micro_batch(batch, example.options);
    EXPECT_EQ(topk->target_tokens, 2U);
    EXPECT_EQ(topk->step_target_tokens, 9U);
    EXPECT_TRUE(torch::equal(topk->rows, torch::tensor({1, 3}, torch::kLong)));
    EXPECT_TRUE(torch::equal(topk->targets.labels, torch::tensor({3, 5}, torch::kLong)));
    EXPECT_TRUE(torch::equal(topk->targets.topk_ids, torch::tensor({{2, 3}, {6, 7}}, torch::kLong)));

    std::vector<float> values(60);
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(i);
    }
    const Unaligned<float> logits(values);
    batch.targets->kind = TeacherTargets::Kind::logits;
    batch.targets->width = 10;
    batch.targets->values = {ElementType::f32, logits.view()};
    const auto full = stage_micro_batch(batch, example.options);
    EXPECT_TRUE(torch::equal(full->targets.teacher_logits,
                             torch::arange(60, torch::kFloat).view({6, 10}).index_select(0, topk->rows)));

    // The mask is the teacher's: without one the labels alone decide.
    StagingOptions plain = example.options;
    plain.with_teacher = false;
    EXPECT_EQ(stage_micro_batch(batch, plain)->target_tokens, 4U);

    const Unaligned<std::uint8_t> none({0, 0, 0, 0, 0, 0});
    batch.targets->loss_mask.bytes = none.view();
    const auto empty = stage_micro_batch(batch, example.options);
    EXPECT_EQ(empty->target_tokens, 0U);
    EXPECT_EQ(empty->targets.labels.size(0), 0);
}

TEST(Staging, RefusesWhatDoesNotFitAndSaysWhat) {
    const Example example;
    const auto refused = [&](const auto& change) {
        MicroBatch batch = example.topk();
        change(batch);
        return message_of([&] { stage_micro_batch(batch, example.options); });
    };
    EXPECT_THAT(refused([](MicroBatch& batch) { batch.targets.reset(); }), HasSubstr("micro-batch 17: there are no"));
    EXPECT_THAT(refused([](MicroBatch& batch) { batch.targets->rows = 1; }), HasSubstr("[1, 3]"));
    EXPECT_THAT(refused([](MicroBatch& batch) { batch.targets->width = 3; }), HasSubstr("top-k ids"));
    EXPECT_THAT(refused([](MicroBatch& batch) { batch.targets->values.bytes = batch.targets->values.bytes.first(22); }),
                HasSubstr("top-k log-probabilities"));
    EXPECT_THAT(refused([](MicroBatch& batch) { batch.targets->values.type = ElementType::i32; }),
                HasSubstr("top-k log-probabilities"));
    EXPECT_THAT(refused([](MicroBatch& batch) { batch.targets->tail.bytes = batch.targets->tail.bytes.first(4); }),
                HasSubstr("tail masses"));
    EXPECT_THAT(refused([](MicroBatch& batch) { batch.targets->kind = TeacherTargets::Kind::logits; }),
                HasSubstr("over 2 tokens, the student has 10"));
    EXPECT_THAT(refused([](MicroBatch& batch) { batch.targets->kind = TeacherTargets::Kind::hidden_states; }),
                HasSubstr("no head for the teacher's hidden states"));
    const Unaligned<std::uint8_t> mask({1, 1, 1, 1, 1});
    EXPECT_THAT(refused([&](MicroBatch& batch) { batch.targets->loss_mask = {ElementType::u8, mask.view()}; }),
                HasSubstr("loss masks have the wrong type or 5 bytes for 6 elements"));
    const Unaligned<std::int32_t> outside({0, 1, 2, 10, 4, 5, 6, 7, 8, 9, 0, 9});
    EXPECT_THAT(refused([&](MicroBatch& batch) { batch.targets->ids.bytes = outside.view(); }),
                HasSubstr("token 10, which is outside"));
    const Unaligned<std::int32_t> twice({0, 1, 2, 2, 4, 5, 6, 7, 8, 9, 0, 9});
    EXPECT_THAT(refused([&](MicroBatch& batch) { batch.targets->ids.bytes = twice.view(); }),
                HasSubstr("token 2 twice at position 1"));
    std::vector<c10::Half> bad(12, c10::Half(-1.0F));
    bad[8] = std::numeric_limits<c10::Half>::quiet_NaN();  // position 4
    const Unaligned<c10::Half> nan(bad);
    EXPECT_THAT(refused([&](MicroBatch& batch) { batch.targets->values.bytes = nan.view(); }),
                HasSubstr("position 4 are not a distribution"));
}

TEST(Staging, RefusesTokensOutsideTheVocabulary) {
    Example example;
    example.options.with_teacher = false;
    auto tokens = std::make_shared<TokenBatch>(*example.tokens);
    tokens->input_ids[2] = 10;
    EXPECT_THAT(message_of([&] { stage_micro_batch({tokens, {}, 9}, example.options); }), HasSubstr("input id 10"));
    tokens->input_ids[2] = 0;
    tokens->labels[0] = -1;
    EXPECT_THAT(message_of([&] { stage_micro_batch({tokens, {}, 9}, example.options); }), HasSubstr("label -1"));
    tokens->labels[0] = 0;
    EXPECT_FALSE(stage_micro_batch({tokens, {}, 9}, example.options)->targets.has_teacher());
    tokens->labels.pop_back();
    EXPECT_THAT(message_of([&] { stage_micro_batch({tokens, {}, 9}, example.options); }), HasSubstr("not [2, 3]"));
}

}  // namespace
}  // namespace distilld::models
