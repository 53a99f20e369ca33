#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "models/training/student_network.hpp"
#include "models/weights/weight_folder.hpp"
#include "pipeline/core/batch_plan.hpp"
#include "tests/unit/models/training/ranks_in_memory.hpp"
#include "tests/unit/models/training/small_student.hpp"

// Several ranks, each with a student and a part of every step: the bits of one that trains on all micro-batches.
namespace distilld::models {
namespace {

using test::make;
using test::micro_batch;
using test::on_ranks;
using test::random_options;
using test::Teacher;
using test::TemporaryFolder;

constexpr std::uint32_t kMicroBatches = 12;
constexpr std::uint64_t kSteps = 3;

/// The micro-batches of a step. The last step has only `of_last`. Those in `silent` have no target.
struct Steps {
    std::uint32_t of_last = kMicroBatches;
    std::set<std::uint32_t> silent{};
};

MicroBatch numbered(std::uint64_t step, std::uint32_t index, const Steps& steps) {
    MicroBatch batch = micro_batch((step * kMicroBatches + index) * 4, 1 + index % 3, Teacher::topk);
    auto tokens = std::make_shared<TokenBatch>(*batch.tokens);
    tokens->number = step * kMicroBatches + index;
    if (steps.silent.contains(index)) {
        std::ranges::fill(tokens->labels, kIgnoredLabel);
        tokens->target_tokens = 0;
    }
    batch.tokens = std::move(tokens);
    batch.index = index;
    batch.step_target_tokens = 300;
    return batch;
}

/// What the student becomes: figures of the steps and the hash of the weights.
std::string trained(CausalLmStudentOptions options, RankExchange* ranks, const Steps& steps) {
    options.ranks = ranks;
    const auto student = make(options);
    const StepSlice slice =
        ranks != nullptr ? slice_of_rank(kMicroBatches, ranks->rank(), ranks->count()) : StepSlice{0, kMicroBatches};
    std::string bits;
    for (std::uint64_t step = 0; step < kSteps; ++step) {
        const std::uint32_t end = step + 1 == kSteps ? std::min(steps.of_last, slice.end) : slice.end;
        StepSums sums;
        for (std::uint32_t index = slice.begin; index < end; ++index) {
            const auto staged = student->stage(numbered(step, index, steps));
            sums.add(student->train(*staged), 10, 1);
        }
        const StepStats stats = student->finish_step(1e-2);
        sums = student->of_all_ranks(sums);
        bits += std::to_string(stats.grad_norm) + " " + std::to_string(stats.loss_sum) + " " +
                std::to_string(stats.kd_sum) + " " + std::to_string(sums.target_tokens) + " " +
                std::to_string(sums.positions) + " ";
    }
    const TemporaryFolder folder;
    student->snapshot({})->write_model(folder.path()).value();
    return bits + sha256_file(folder / (options.student.lora ? kAdapterWeightsFile : "model.safetensors")).value();
}

void expect_same_bits(CausalLmStudentOptions options, std::uint32_t groups, const std::vector<std::uint32_t>& counts,
                      const Steps& steps = {}) {
    options.training.micro_batches = kMicroBatches;
    options.training.gradient_groups = groups;
    const std::string alone = trained(options, nullptr, steps);
    for (const std::uint32_t count : counts) {
        std::vector<std::string> results(count);
        on_ranks(count, [&](RankExchange& ranks) { results[ranks.rank()] = trained(options, &ranks, steps); });
        for (const std::string& result : results) {
            EXPECT_EQ(result, alone) << count << " ranks";
        }
    }
}

TEST(Ranks, TrainAsOneDoes) {
    for (const bool tied : {true, false}) {
        for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
            SCOPED_TRACE(testing::Message() << "tied " << tied << ", dtype " << static_cast<int>(dtype));
            CausalLmStudentOptions options = random_options(tied);
            options.student.dtype = dtype;
            expect_same_bits(options, 4, {1, 2, 4});
        }
    }
}

TEST(Ranks, NeedNoPowerOfTwo) {
    expect_same_bits(random_options(), 3, {3});
    expect_same_bits(random_options(), 6, {2, 3});
    expect_same_bits(random_options(false), 12, {2, 3, 4, 6});
}

TEST(Ranks, MayHaveNothingToTrainOn) {
    for (const std::uint32_t of_last : {1, 4, 7}) {
        SCOPED_TRACE(of_last);
        expect_same_bits(random_options(), 4, {2, 4}, {.of_last = of_last});
    }
    expect_same_bits(random_options(), 4, {2, 4}, {.silent = {0, 1, 2, 5}});
    expect_same_bits(random_options(), 4, {2, 4}, {.silent = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}});
    expect_same_bits(random_options(), 4, {2}, {.silent = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}});
}

TEST(Ranks, DrawDropoutOfTheirMicroBatches) {
    CausalLmStudentOptions options = random_options();
    options.student.config_json = R"({"model_type":"gpt2","vocab_size":61,"n_embd":32,"n_layer":2,"n_head":4,
        "n_positions":32,"initializer_range":0.1,"resid_pdrop":0.1,"embd_pdrop":0.1,"attn_pdrop":0.1})";
    expect_same_bits(options, 4, {2, 4});
}

TEST(Ranks, ClipBySameNorm) {
    CausalLmStudentOptions options = random_options();
    options.training.max_grad_norm = 1e-3;
    expect_same_bits(options, 2, {2});
}

}  // namespace
}  // namespace distilld::models
