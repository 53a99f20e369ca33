#include "server/estimate/run_estimate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/cores.hpp"
#include "server/estimate/estimate_inputs.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kConfig =
    R"({"model_type":"llama","vocab_size":100,"hidden_size":8,"intermediate_size":12,"num_hidden_layers":3,)"
    R"("num_attention_heads":2,"num_key_value_heads":1,"head_dim":4,"tie_word_embeddings":true})";
// Embedding 800; a layer 8·8 + 2·8·4 + 8·8 + 3·8·12 + 16 = 496; the last norm 8.
constexpr std::uint64_t kParameters = 800 + 3 * 496 + 8;

JobSpec spec_of() {
    JobSpec spec;
    spec.student.init = StudentInit::random;
    spec.student.config_json = kConfig;
    spec.student.dtype = Dtype::fp32;
    spec.dataset.sequence_length = 32;
    spec.training.batch_size = 2;
    spec.training.micro_batches = 4;
    spec.training.max_steps = 10;
    return spec;
}

EstimateInputs inputs_of() {
    EstimateInputs inputs;
    inputs.student = models::parse_model_config(kConfig, JsonPlace{"", "/student/config"}).value();
    return inputs;
}

TEST(RunEstimate, CountsStepsTokensAndNumbers) {
    const auto estimate = estimate_run(spec_of(), inputs_of());
    EXPECT_EQ(estimate.steps, 10U);
    EXPECT_EQ(estimate.tokens, 10U * 4 * 2 * 32);
    EXPECT_EQ(estimate.parameters, kParameters);
    EXPECT_EQ(estimate.trainable_parameters, kParameters);
    EXPECT_EQ(estimate.memory->weights, 4 * kParameters);
    EXPECT_EQ(estimate.memory->gradients, 4 * kParameters);
    EXPECT_EQ(estimate.memory->optimizer, 8 * kParameters);
    EXPECT_EQ(estimate.memory->teacher_buffers, 0U);
    EXPECT_EQ(estimate.memory->total(), estimate.memory->weights + estimate.memory->gradients +
                                            estimate.memory->optimizer + estimate.memory->activations +
                                            estimate.memory->runtime);
    EXPECT_THAT(estimate.notes, IsEmpty());
}

TEST(RunEstimate, CountsTheStudentOncePerRank) {
    auto spec = spec_of();
    const auto one = estimate_run(spec, inputs_of());
    spec.training.ranks = 2;
    spec.training.gradient_groups = 2;
    const auto two = estimate_run(spec, inputs_of());
    EXPECT_EQ(two.memory->weights, 2 * one.memory->weights);
    EXPECT_EQ(two.memory->gradients, 2 * one.memory->gradients) << "each has one group";
    EXPECT_EQ(two.memory->optimizer, 2 * one.memory->optimizer);
    EXPECT_EQ(two.memory->activations, 2 * one.memory->activations);
    EXPECT_EQ(two.memory->runtime, 2 * one.memory->runtime);
    spec.training.shard_optimizer = true;
    EXPECT_EQ(estimate_run(spec, inputs_of()).memory->optimizer, one.memory->optimizer);
    EXPECT_EQ(estimate_run(spec, inputs_of()).memory->weights, two.memory->weights) << "forward reads the masters";
    spec.student.dtype = Dtype::bf16;
    const std::uint64_t shared = estimate_run(spec, inputs_of()).memory->weights;
    spec.training.shard_optimizer = false;
    const std::uint64_t apart = estimate_run(spec, inputs_of()).memory->weights;
    EXPECT_LT(shared, apart) << "one rank has the masters of matrices";
    EXPECT_GT(shared, apart * 2 / 3) << "both have those of tables, and all copies";
}

TEST(RunEstimate, F12SizesAtTheirMaximumAreNotFew) {
    auto spec = spec_of();
    spec.training.max_steps = 1'000'000'000'000;
    spec.training.batch_size = 65536;
    spec.training.micro_batches = 65536;
    spec.dataset.sequence_length = 1U << 20;
    spec.teachers[""];
    spec.teacher()->endpoints = {"http://t"};
    spec.teacher()->window = 1U << 20;
    spec.teacher()->window_bytes = 1ULL << 50;
    auto inputs = inputs_of();
    inputs.student->decoder.vocab_size = 1 << 24;
    inputs.student->decoder.hidden_size = 1 << 20;
    inputs.student->decoder.num_hidden_layers = 1 << 16;
    const auto estimate = estimate_run(spec, inputs);
    EXPECT_EQ(estimate.tokens, kSaturated);
    EXPECT_EQ(estimate.memory->activations, kSaturated);
    EXPECT_GE(estimate.memory->teacher_buffers, 1ULL << 50);
    EXPECT_EQ(estimate.memory->total(), kSaturated);
    EXPECT_THAT(estimate.notes, ::testing::IsSupersetOf({"tokens: as many or more", "memory: as much or more"}));
}

TEST(RunEstimate, KnowsWhatEachOptimizerKeeps) {
    auto spec = spec_of();
    spec.training.optimizer = OptimizerKind::sgd;
    EXPECT_EQ(estimate_run(spec, inputs_of()).memory->optimizer, 0U);
    spec.training.sgd_momentum = 0.9;
    EXPECT_EQ(estimate_run(spec, inputs_of()).memory->optimizer, 4 * kParameters);
    spec.training.optimizer = OptimizerKind::adamw_8bit;
    const std::uint64_t coded = kParameters - 800;
    EXPECT_EQ(estimate_run(spec, inputs_of()).memory->optimizer, 8 * 800 + 2 * (coded + 4 * (coded / 256)));
}

TEST(RunEstimate, CountsAdaptersBesideAFrozenBase) {
    auto spec = spec_of();
    spec.student.lora.emplace();
    spec.student.lora->r = 2;
    spec.student.lora->target_modules = {"q_proj", "v_proj"};
    const auto estimate = estimate_run(spec, inputs_of());
    const std::uint64_t adapters = 3 * 2 * ((8 + 8) + (8 + 4));
    EXPECT_EQ(estimate.trainable_parameters, adapters);
    EXPECT_EQ(estimate.parameters, kParameters + adapters);
    EXPECT_EQ(estimate.memory->gradients, 4 * adapters);
    spec.student.lora->target_modules.clear();
    EXPECT_EQ(estimate_run(spec, inputs_of()).trainable_parameters,
              3U * 2 * ((8 + 8) + 2 * (8 + 4) + (8 + 8) + 2 * (8 + 12) + (12 + 8)));
}

TEST(RunEstimate, EachReplicaHasItsActivations) {
    auto spec = spec_of();
    spec.training.micro_batches = 8;
    auto inputs = inputs_of();
    inputs.cores = 4;
    const auto activations = [&] { return estimate_run(spec, inputs).memory->activations; };
    const std::uint64_t automatic = activations();
    spec.training.replicas_auto = false;
    const std::uint64_t one = activations();
    EXPECT_EQ(automatic, 4 * one);
    spec.training.replicas = 3;
    EXPECT_EQ(activations(), 3 * one);
    spec.training.micro_batches = 2;
    EXPECT_EQ(activations(), 2 * one);
    spec.training.parallel = false;
    EXPECT_EQ(activations(), one);
}

TEST(RunEstimate, MemoryGrowsWithTheMicroBatchAndShrinksWithCheckpointing) {
    auto spec = spec_of();
    const auto one = *estimate_run(spec, inputs_of()).memory;
    spec.training.batch_size = 4;
    const auto two = *estimate_run(spec, inputs_of()).memory;
    EXPECT_EQ(two.activations, 2 * one.activations);
    EXPECT_EQ(two.weights, one.weights);
    spec.training.micro_batches = 64;
    EXPECT_EQ(estimate_run(spec, inputs_of()).memory->total(), two.total()) << "micro-batches come one by one";
    spec.training.gradient_checkpointing = true;
    EXPECT_LT(estimate_run(spec, inputs_of()).memory->activations, two.activations);
    spec.student.dtype = Dtype::bf16;
    EXPECT_EQ(estimate_run(spec, inputs_of()).memory->weights, 6 * kParameters);
}

TEST(RunEstimate, TheTeachersAnswersAreBoundedByTheirWindow) {
    auto spec = spec_of();
    spec.teachers[""];
    spec.teacher()->endpoints = {"http://t"};
    spec.teacher()->top_k = 10;
    spec.teacher()->max_concurrent.limit = 8;
    const std::uint64_t answer = 2 * 32 * 10 * 8;
    EXPECT_EQ(estimate_run(spec, inputs_of()).memory->teacher_buffers, (16 + 3) * answer);
    spec.teacher()->window = 2;
    EXPECT_EQ(estimate_run(spec, inputs_of()).memory->teacher_buffers, (2 + 3) * answer);
    spec.teacher()->window_bytes = answer;
    EXPECT_EQ(estimate_run(spec, inputs_of()).memory->teacher_buffers, (1 + 3) * answer);
    auto inputs = inputs_of();
    inputs.local_teacher = inputs.student;
    EXPECT_EQ(estimate_run(spec, inputs).memory->teacher_buffers, (1 + 3) * answer + 4 * kParameters);
}

TEST(RunEstimate, EachRankHoldsAStudentAndTheyShareATeacherInTheProcess) {
    auto spec = spec_of();
    spec.teachers[""].model_dir = "teacher";
    spec.teacher()->top_k = 10;
    spec.teacher()->dtype = Dtype::fp32;
    auto inputs = inputs_of();
    inputs.local_teacher = inputs.student;
    const auto one = *estimate_run(spec, inputs).memory;
    spec.training.ranks = 4;
    const auto four = *estimate_run(spec, inputs).memory;
    EXPECT_EQ(four.total() - four.teacher_buffers, 4 * (one.total() - one.teacher_buffers));
    EXPECT_EQ(four.teacher_buffers, one.teacher_buffers);
    spec.training.shard_optimizer = true;
    EXPECT_EQ(estimate_run(spec, inputs).memory->optimizer, one.optimizer);
    spec.teacher()->placement = TeacherPlacement::shared;
    EXPECT_EQ(estimate_run(spec, inputs).memory->teacher_buffers, one.teacher_buffers);
    spec.teacher()->placement = TeacherPlacement::duplicated;
    EXPECT_EQ(estimate_run(spec, inputs).memory->teacher_buffers, one.teacher_buffers + 3 * 4 * kParameters);
}

TEST(RunEstimate, EpochsAreStepsOnceTheRowsAreKnown) {
    auto spec = spec_of();
    spec.training.max_steps.reset();
    spec.training.epochs = 2.5;
    EXPECT_EQ(estimate_run(spec, inputs_of()).steps, std::nullopt);
    auto inputs = inputs_of();
    inputs.rows = 100;
    EXPECT_EQ(estimate_run(spec, inputs).steps, 33U) << "of 13 an epoch, the last of them smaller";
    spec.training.batch_size_auto = true;
    const auto automatic = estimate_run(spec, inputs);
    EXPECT_EQ(automatic.steps, std::nullopt);
    EXPECT_THAT(automatic.notes, Contains(HasSubstr("steps: training.batch_size is found when the job starts")));
}

TEST(RunEstimate, WithAutomaticMicroBatchesTheRowsAreEnough) {
    auto spec = spec_of();
    spec.training.max_steps.reset();
    spec.training.epochs = 1;
    spec.training.batch_size_auto = true;
    spec.training.micro_batches_auto = true;
    auto inputs = inputs_of();
    EXPECT_EQ(estimate_run(spec, inputs).steps, std::nullopt);
    inputs.rows = 87;
    const auto estimate = estimate_run(spec, inputs);
    EXPECT_EQ(estimate.steps, 44U);
    EXPECT_EQ(estimate.tokens, 87U * spec.dataset.sequence_length);
}

TEST(RunEstimate, OfAGenerateJobSaysWhyThereIsNone) {
    auto spec = spec_of();
    spec.kind = JobKind::generate;
    const auto json = to_json_object(estimate_run(spec, {}));
    for (const char* name : {"steps", "tokens", "parameters", "memory_bytes", "seconds", "based_on"}) {
        EXPECT_TRUE(json.at(name).is_null()) << name;
    }
    EXPECT_EQ(json.at("notes").as_array().size(), 1U);
}

TEST(EstimateInputs, SaysWhyTheStepsAreNotKnown) {
    auto spec = spec_of();
    spec.training.max_steps.reset();
    spec.training.epochs = 1;
    std::vector<std::string> notes;
    JobInspection inspection;
    inspection.rows = 7;
    EXPECT_EQ(read_estimate_inputs(spec, inspection, notes).rows, 7U);
    EXPECT_THAT(notes, IsEmpty());
    inspection.rows.reset();
    EXPECT_EQ(read_estimate_inputs(spec, inspection, notes).rows, std::nullopt);
    EXPECT_THAT(notes, ElementsAre("steps: dataset.train has more than 4 MiB, and is read when the job starts"));
    spec.training.max_steps = 5;  // the rows are not needed
    notes.clear();
    EXPECT_EQ(read_estimate_inputs(spec, inspection, notes).rows, std::nullopt);
    EXPECT_THAT(notes, IsEmpty());
}

TEST(EstimateInputs, KnowsWhichMachinesMultiplyBf16) {
    EXPECT_FALSE(multiplies_bf16(""));
    EXPECT_FALSE(multiplies_bf16("processor: 0\nflags\t\t: fpu avx2 amx_tile\nbugs: amx_bf16\n"));
    EXPECT_TRUE(multiplies_bf16("processor: 0\nflags\t\t: fpu amx_tile amx_bf16\n"));
    EXPECT_TRUE(multiplies_bf16("processor: 0\nflags\t\t: fpu avx512_bf16\n"));
}

}  // namespace
}  // namespace distilld
