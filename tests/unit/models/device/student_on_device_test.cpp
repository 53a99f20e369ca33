#include "models/training/student_on_device.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "models/network/causal_lm.hpp"
#include "models/weights/safetensors.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/models/device/fake_device.hpp"
#include "tests/unit/models/training/small_student.hpp"
#include "tests/unit/models/training/steps_of_ranks.hpp"

/// A student away from the CPU: the numbers of one on it, nothing read that only the device may read, and no wait but
/// one a step.
namespace distilld::models {
namespace {

using test::fake_device;
using test::fake_device_counts;
using test::FakeDeviceCounts;
using test::micro_batch;
using test::Teacher;
using testing::HasSubstr;

using Change = std::function<void(CausalLmStudentOptions&)>;

struct Case {
    std::string name;
    Teacher teacher = Teacher::topk;
    Change change = [](CausalLmStudentOptions&) {};
    bool packed = false;
};

void PrintTo(const Case& one, std::ostream* out) {
    *out << one.name;
}

/// The rows as three documents each.
MicroBatch batch_of(const Case& one, std::uint64_t first, std::uint64_t total) {
    MicroBatch batch = micro_batch(first, 2, one.teacher, total);
    if (one.packed) {
        auto tokens = std::make_shared<TokenBatch>(*batch.tokens);
        for (std::uint32_t row = 0; row < tokens->rows; ++row) {
            for (const auto& [begin, length] : {std::pair{0U, 5U}, {5U, 5U}, {10U, 6U}}) {
                RowDocument document;
                document.row = row;
                document.begin = begin;
                document.length = length;
                tokens->documents.push_back(document);
            }
        }
        batch.tokens = tokens;
    }
    return batch;
}

CausalLmStudentOptions options_of(const Case& one) {
    CausalLmStudentOptions options = test::random_options();
    options.with_teacher = one.teacher != Teacher::none;
    one.change(options);
    return options;
}

std::unique_ptr<Student> student_on(const torch::Device& device, const CausalLmStudentOptions& options) {
    auto student = make_student_on(device, options);
    if (!student) {
        throw ErrorException(student.error());
    }
    return std::move(*student);
}

/// Micro-batch k + 1 is staged before k trains, as in a job.
StepStats train_step(Student& student, const Case& one, std::uint64_t step) {
    constexpr std::uint64_t kMicroBatches = 4;
    const std::uint64_t row = step * 2 * kMicroBatches;
    const std::uint64_t total = test::token_batch(row, 2 * kMicroBatches)->target_tokens;
    auto staged = student.stage(batch_of(one, row, total));
    for (std::uint64_t i = 0; i < kMicroBatches; ++i) {
        auto next = i + 1 < kMicroBatches ? student.stage(batch_of(one, row + 2 * (i + 1), total)) : nullptr;
        student.train(*staged);
        staged = std::move(next);
    }
    return student.finish_step(1e-2);
}

std::vector<torch::Tensor> weights_of(Student& student, const std::string& file = "model.safetensors") {
    const test::TemporaryFolder folder;
    EXPECT_TRUE(student.snapshot({})->write_checkpoint(folder / "made"));
    const SafetensorsFile read = SafetensorsFile::open(folder / "made" / file).value();
    std::vector<torch::Tensor> tensors;
    for (const std::string& name : read.names()) {
        tensors.push_back(read.tensor(name).value());
    }
    return tensors;
}

class StudentOnDevice : public testing::TestWithParam<Case> {
  protected:
    void TearDown() override { at::globalContext().setDeterministicAlgorithms(false, false); }
};

TEST_P(StudentOnDevice, LearnsAsOnTheCpuAndWaitsOnceAStep) {
    const CausalLmStudentOptions options = options_of(GetParam());
    const auto here = student_on(torch::kCPU, options);
    const auto there = student_on(fake_device(), options);
    for (std::uint64_t step = 0; step < 3; ++step) {
        const StepStats wanted = train_step(*here, GetParam(), step);
        test::reset_fake_device_counts();
        const StepStats got = train_step(*there, GetParam(), step);
        const FakeDeviceCounts counts = fake_device_counts();
        if (step > 1) {  // the first forward pass and the first update may set things up
            EXPECT_EQ(counts.copies_to_host, 1U) << "losses, norm: once a step";
            EXPECT_EQ(counts.waited_copies_to, 0U);
        }
        EXPECT_GE(counts.copies_behind, 4U * 2);
        EXPECT_EQ(counts.blocked_streams, 4U) << "once a micro-batch";
        EXPECT_TRUE(got.finite);
        EXPECT_NEAR(got.loss_sum, wanted.loss_sum, 1e-4 * std::abs(wanted.loss_sum));
        EXPECT_NEAR(got.kd_sum, wanted.kd_sum, 1e-4 * std::abs(wanted.kd_sum) + 1e-9);
        EXPECT_NEAR(got.ce_sum, wanted.ce_sum, 1e-4 * std::abs(wanted.ce_sum));
        EXPECT_NEAR(got.grad_norm, wanted.grad_norm, 1e-3 * wanted.grad_norm);
    }
    const auto wanted = weights_of(*here);
    const auto got = weights_of(*there);
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        EXPECT_LT((got[i] - wanted[i]).norm().item<double>(), 2e-3 * wanted[i].norm().item<double>() + 1e-6);
    }
    const auto held_out = test::token_batch(40, 4);
    EXPECT_NEAR(there->evaluate(*held_out).ce_sum, here->evaluate(*held_out).ce_sum,
                1e-3 * here->evaluate(*held_out).ce_sum);
}

TEST_P(StudentOnDevice, GoesOnFromACheckpointWithTheSameBits) {
    const CausalLmStudentOptions options = options_of(GetParam());
    const auto whole = student_on(fake_device(), options);
    const auto first = student_on(fake_device(), options);
    const auto second = student_on(fake_device(), options);
    const test::TemporaryFolder folder;
    train_step(*whole, GetParam(), 0);
    train_step(*first, GetParam(), 0);
    ASSERT_TRUE(first->snapshot({})->write_checkpoint(folder / "made"));
    ASSERT_TRUE(second->restore(folder / "made"));
    train_step(*whole, GetParam(), 1);
    train_step(*second, GetParam(), 1);
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
        const auto wanted = weights_of(*whole, file);
        const auto got = weights_of(*second, file);
        ASSERT_EQ(got.size(), wanted.size());
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            EXPECT_TRUE(torch::equal(got[i], wanted[i])) << file << " " << i;
        }
    }
    EXPECT_LE(second->sample({1, 2, 3}, SampleOptions{4, 0.0, 1, std::nullopt}).size(), 4U);
    EXPECT_TRUE(second->snapshot({})->write_model(folder / "exported"));
}

/// A base of its own, in a folder that lasts as long as the program.
const Change kAdapted = [](CausalLmStudentOptions& options) {
    static const test::TemporaryFolder folder;
    const auto base = folder / "base";
    if (!std::filesystem::exists(base)) {
        const auto network =
            make_causal_lm(parse_model_config(test::config_json(true), {}).value(), ComputeDtype::fp32, torch::kCPU, 3);
        write_model_folder(base, network->model_export()).value();
    }
    options.student.init = StudentInit::pretrained;
    options.student.config_json.reset();
    options.student.model = base.string();
    LoraSpec& lora = options.student.lora.emplace();
    lora.r = 4;
    lora.alpha = 6.0;
    lora.dropout = 0.2;
};

const auto kOptimizer = [](OptimizerKind kind) {
    return [kind](CausalLmStudentOptions& options) {
        options.training.optimizer = kind;
        options.training.sgd_momentum = 0.9;
        options.student.config_json = test::config_json(true, 96);  // matrices that 8 bits are for
    };
};

INSTANTIATE_TEST_SUITE_P(
    All, StudentOnDevice,
    testing::Values(
        Case{.name = "topk"}, Case{.name = "logits", .teacher = Teacher::logits},
        Case{.name = "alone", .teacher = Teacher::none},
        Case{"tempered", Teacher::topk, [](auto& options) { options.training.temperature = 2.0; }},
        Case{"reverse", Teacher::topk, [](auto& options) { options.training.beta = 1.0; }},
        Case{"jsd", Teacher::logits, [](auto& options) { options.training.beta = 0.5; }},
        Case{"untied", Teacher::topk, [](auto& options) { options.student.config_json = test::config_json(false); }},
        Case{"serial", Teacher::topk, [](auto& options) { options.training.overlap_optimizer = false; }},
        Case{"packed", Teacher::topk, [](auto&) {}, true}, Case{"packed_logits", Teacher::logits, [](auto&) {}, true},
        Case{"window", Teacher::topk,
             [](auto& options) {
                 std::string& config = *options.student.config_json;
                 config.insert(1, R"("model_type":"mistral","sliding_window":5,)");
             }},
        Case{"recomputed", Teacher::topk, [](auto& options) { options.training.gradient_checkpointing = true; }},
        Case{"ternary", Teacher::topk, [](auto& options) { options.student.quantization = Quantization::ternary; }},
        Case{"lora", Teacher::topk, kAdapted}, Case{"sgd", Teacher::topk, kOptimizer(OptimizerKind::sgd)},
        Case{"adamw_8bit", Teacher::topk, kOptimizer(OptimizerKind::adamw_8bit)}),
    [](const auto& info) { return info.param.name; });

class RanksOnDevice : public StudentOnDevice {};

TEST_P(RanksOnDevice, TrainAsOneDoes) {
    CausalLmStudentOptions options = options_of(GetParam());
    const auto make_there = [](const auto& of_rank) { return student_on(fake_device(), of_rank); };
    test::expect_same_bits(options, 4, {1, 2, 4}, {}, make_there);
    test::expect_same_bits(options, 4, {2}, {.silent = {0, 1, 2, 5}}, make_there);
    options.training.shard_optimizer = true;
    test::expect_same_bits(options, 4, {1, 2}, {.of_last = 7}, make_there);
}

INSTANTIATE_TEST_SUITE_P(All, RanksOnDevice,
                         testing::Values(Case{.name = "tied"},
                                         Case{"untied", Teacher::topk,
                                              [](auto& options) {
                                                  options.student.config_json = test::config_json(false);
                                              }},
                                         Case{"recomputed", Teacher::topk,
                                              [](auto& options) { options.training.gradient_checkpointing = true; }}),
                         [](const auto& info) { return info.param.name; });

TEST(StudentMemory, AMicroBatchThatDoesNotFitIsAnErrorThatSaysWhatToDo) {
    CausalLmStudentOptions options = test::random_options();
    const auto student = student_on(fake_device(), options);
    const auto staged = student->stage(micro_batch(0, 2, Teacher::topk));
    test::limit_fake_device_memory(4096);
    try {
        student->train(*staged);
        ADD_FAILURE() << "it fitted";
    } catch (const OutOfDeviceMemory& error) {
        EXPECT_EQ(error.error().kind, ErrorKind::invalid_input);
        EXPECT_THAT(error.what(), HasSubstr("/training/batch_size: a micro-batch of 32 positions does not fit into the "
                                            "memory of fake:0; take fewer rows"));
        EXPECT_THAT(error.what(), HasSubstr("the fake device has no"));
        EXPECT_THAT(error.what(), testing::Not(HasSubstr("\n")));
    }
    test::limit_fake_device_memory(0);
    // What was half done is forgotten with the step.
    student->discard_gradients();
    EXPECT_TRUE(train_step(*student, Case{.name = "after"}, 1).finite);
}

}  // namespace
}  // namespace distilld::models
