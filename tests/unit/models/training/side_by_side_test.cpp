#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "models/training/student_network.hpp"
#include "models/weights/weight_folder.hpp"
#include "tests/unit/models/training/small_student.hpp"

// Micro-batches in forward and backward at once, each on a thread of its own: the bits of one after the other.
namespace distilld::models {
namespace {

using test::config_json;
using test::make;
using test::micro_batch;
using test::random_options;
using test::Teacher;
using test::TemporaryFolder;
using test::token_batch;

constexpr std::uint64_t kMicroBatches = 20;  // more than may be in backward at once
constexpr std::uint64_t kSteps = 3;

/// The micro-batches of a step, with one to four rows.
std::vector<MicroBatch> micro_batches(std::uint64_t step, bool packed) {
    std::vector<MicroBatch> all;
    std::uint64_t targets = 0;
    for (std::uint64_t i = 0; i < kMicroBatches; ++i) {
        const std::uint64_t number = step * kMicroBatches + i;
        MicroBatch batch =
            micro_batch(number * 4, 1 + static_cast<std::uint32_t>(i % 4), packed ? Teacher::none : Teacher::topk);
        auto tokens = std::make_shared<TokenBatch>(*batch.tokens);
        tokens->number = number;
        if (packed) {
            for (std::uint32_t row = 0; row < tokens->rows; ++row) {
                tokens->documents.push_back({row, 0, 7, 2 * row});
                tokens->documents.push_back({row, 7, 9, 2 * row + 1});
            }
        }
        batch.tokens = std::move(tokens);
        targets += batch.tokens->target_tokens;
        all.push_back(std::move(batch));
    }
    for (MicroBatch& batch : all) {
        batch.step_target_tokens = targets;
        batch.index = static_cast<std::uint32_t>(&batch - all.data());
    }
    return all;
}

/// Trains with `replicas` threads. The norms of the steps' gradients and the hash of the weights.
std::string trained(const CausalLmStudentOptions& options, std::uint64_t replicas, bool packed) {
    const auto student = make(options);
    std::string bits;
    for (std::uint64_t step = 0; step < kSteps; ++step) {
        std::vector<std::unique_ptr<StagedBatch>> staged;
        for (const MicroBatch& batch : micro_batches(step, packed)) {
            staged.push_back(student->stage(batch));
        }
        {
            std::vector<std::jthread> threads;
            for (std::uint64_t replica = 0; replica < replicas; ++replica) {
                threads.emplace_back([&, replica] {
                    for (std::uint64_t i = replica; i < staged.size(); i += replicas) {
                        student->train(*staged[i]);
                    }
                });
            }
        }
        const StepStats stats = student->finish_step(1e-2);
        bits += std::to_string(stats.grad_norm) + " " + std::to_string(stats.loss_sum) + " ";
    }
    const TemporaryFolder folder;
    student->snapshot({})->write_model(folder.path()).value();
    return bits + sha256_file(folder / (options.student.lora ? kAdapterWeightsFile : "model.safetensors")).value();
}

void expect_same_bits(const CausalLmStudentOptions& options, bool packed = false) {
    const std::string alone = trained(options, 1, packed);
    EXPECT_EQ(trained(options, 2, packed), alone);
    EXPECT_EQ(trained(options, 3, packed), alone);
}

TEST(SideBySide, ATiedHeadAndOneOfItsOwn) {
    for (const bool tied : {true, false}) {
        for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
            SCOPED_TRACE(testing::Message() << "tied " << tied << ", dtype " << static_cast<int>(dtype));
            CausalLmStudentOptions options = random_options(tied);
            options.student.dtype = dtype;
            expect_same_bits(options);
        }
    }
}

TEST(SideBySide, GroupsOfGradients) {
    for (const bool tied : {true, false}) {
        CausalLmStudentOptions options = random_options(tied);
        options.training.micro_batches = kMicroBatches;
        const std::string in_order = trained(options, 1, false);
        for (const std::uint32_t groups : {2, 3, 8}) {
            SCOPED_TRACE(testing::Message() << "tied " << tied << ", groups " << groups);
            options.training.gradient_groups = groups;
            expect_same_bits(options);
            EXPECT_NE(trained(options, 1, false), in_order);
        }
    }
}

TEST(SideBySide, BlocksThatAreComputedAgainAndTernaryWeights) {
    CausalLmStudentOptions options = random_options();
    options.training.gradient_checkpointing = true;
    expect_same_bits(options);
    options.student.quantization = Quantization::ternary;
    expect_same_bits(options);
}

TEST(SideBySide, DropoutLayerNormsAndBiases) {
    CausalLmStudentOptions options = random_options();
    options.student.config_json = R"({"model_type":"gpt2","vocab_size":61,"n_embd":32,"n_layer":2,"n_head":4,
        "n_positions":32,"initializer_range":0.1,"resid_pdrop":0.1,"embd_pdrop":0.1,"attn_pdrop":0.1})";
    expect_same_bits(options);
    options.training.gradient_checkpointing = true;
    expect_same_bits(options);
}

TEST(SideBySide, PackedDocuments) {
    CausalLmStudentOptions options = random_options(false);
    options.with_teacher = false;
    options.training.kd_ratio = 0;
    expect_same_bits(options, true);
}

TEST(SideBySide, AdaptersWithDropout) {
    const TemporaryFolder folder;
    const auto base =
        make_causal_lm(parse_model_config(config_json(true), {}).value(), ComputeDtype::fp32, torch::kCPU, 3);
    write_model_folder(folder / "base", base->model_export()).value();
    CausalLmStudentOptions options = random_options();
    options.student.init = StudentInit::pretrained;
    options.student.config_json.reset();
    options.student.model = (folder / "base").string();
    LoraSpec& lora = options.student.lora.emplace();
    lora.r = 4;
    lora.alpha = 6.0;
    lora.dropout = 0.2;
    expect_same_bits(options);
}

}  // namespace
}  // namespace distilld::models
