#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/sha256.hpp"
#include "models/families/module_names.hpp"
#include "models/network/lora.hpp"
#include "models/training/student_network.hpp"
#include "models/weights/weight_folder.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/models/training/small_student.hpp"

/// Students that learn adapters beside a frozen base.
namespace distilld::models {
namespace {

namespace fs = std::filesystem;
using test::config_json;
using test::make;
using test::TemporaryFolder;
using testing::HasSubstr;
using testing::StartsWith;

class LoraStudent : public testing::Test {
  protected:
    LoraStudent() { write_base(3); }

    void write_base(std::uint64_t seed) const {
        const auto network =
            make_causal_lm(parse_model_config(config_json(true), {}).value(), ComputeDtype::fp32, torch::kCPU, seed);
        write_model_folder(base(), network->model_export()).value();
    }

    [[nodiscard]] fs::path base() const { return folder_ / "base"; }

    [[nodiscard]] CausalLmStudentOptions options(double dropout = 0.0) const {
        CausalLmStudentOptions made = test::random_options();
        made.student.init = StudentInit::pretrained;
        made.student.config_json.reset();
        made.student.model = base().string();
        LoraSpec& lora = made.student.lora.emplace();
        lora.r = 4;
        lora.alpha = 6.0;
        lora.dropout = dropout;
        return made;
    }

    [[nodiscard]] static std::string refusal(const CausalLmStudentOptions& options) {
        const auto student = make_causal_lm_student(options);
        return student ? "" : student.error().message;
    }

    TemporaryFolder folder_;
};

/// Two micro-batches with their numbers (that of the first is 2·step + `shift`), staged before the first is trained on.
StepStats train_step(Student& student, std::uint64_t step, std::uint64_t shift = 0) {
    std::vector<std::unique_ptr<StagedBatch>> staged;
    for (const std::uint64_t number : {2 * step, 2 * step + 1}) {
        MicroBatch batch = test::micro_batch(2 * number, 2, test::Teacher::topk, 40);
        auto tokens = std::make_shared<TokenBatch>(*batch.tokens);
        tokens->number = number + shift;
        batch.tokens = std::move(tokens);
        staged.push_back(student.stage(std::move(batch)));
    }
    for (const auto& batch : staged) {
        student.train(*batch);
    }
    return student.finish_step(1e-2);
}

std::string adapter_hash(Student& student) {
    const TemporaryFolder folder;
    student.snapshot({})->write_model(folder.path()).value();
    return sha256_file(folder / "adapter_model.safetensors").value();
}

double held_out(Student& student) {
    return student.evaluate(*test::token_batch(40, 4)).ce_sum;
}

TEST_F(LoraStudent, HoldsTheBaseOnceAndLearnsTheAdaptersAlone) {
    StudentSpec spec = options().student;
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
        spec.dtype = dtype;
        const auto network = make_student_network(spec, TrainingSpec(), torch::kCPU).value();
        std::uint64_t adapters = 0;
        for (const Parameter& parameter : all_parameters(network->groups())) {
            if (parameter.trainable) {
                EXPECT_THAT(parameter.name, StartsWith("base_model.model.model.layers."));
                EXPECT_EQ(parameter.master.scalar_type(), torch::kFloat) << parameter.name;
                EXPECT_TRUE(parameter.master.requires_grad());
                adapters += static_cast<std::uint64_t>(parameter.master.numel());
            } else {
                EXPECT_FALSE(parameter.master.defined()) << parameter.name << " has a master";
                EXPECT_EQ(parameter.compute.scalar_type(), dtype == Dtype::bf16 ? torch::kBFloat16 : torch::kFloat);
                EXPECT_FALSE(parameter.compute.requires_grad());
            }
        }
        // r · (inputs + outputs) of q, k, v, o, gate, up, down in each of two layers.
        constexpr std::uint64_t kSizes = (32 + 32) + 2 * (32 + 16) + (32 + 32) + 3 * (32 + 48);
        EXPECT_EQ(adapters, 2 * 4 * kSizes);
        EXPECT_EQ(trainable_count(network->groups()), adapters);
    }
}

TEST_F(LoraStudent, StartsAsTheBaseAndChangesOnlyItself) {
    CausalLmStudentOptions plain = options();
    plain.student.lora.reset();
    const double before = held_out(*make(plain));
    const std::string base_bytes = sha256_file(base() / "model.safetensors").value();
    const auto student = make(options());
    EXPECT_EQ(held_out(*student), before) << "B is 0";
    const auto trained = [&] { return student->evaluate(*test::token_batch(0, 4)).ce_sum; };
    const double first = trained();
    for (int step = 0; step < 20; ++step) {
        EXPECT_GT(train_step(*student, 0).grad_norm, 0);
    }
    EXPECT_LT(trained(), 0.9 * first);
    EXPECT_EQ(sha256_file(base() / "model.safetensors").value(), base_bytes);
}

TEST_F(LoraStudent, ACheckpointHoldsAdaptersAloneAndContinuesToTheSameBits) {
    for (const double dropout : {0.0, 0.3}) {
        const auto uninterrupted = make(options(dropout));
        const auto first = make(options(dropout));
        for (std::uint64_t step = 0; step < 3; ++step) {
            train_step(*uninterrupted, step);
            train_step(*first, step);
        }
        const fs::path checkpoint = folder_ / ("checkpoint" + std::to_string(dropout));
        first->snapshot({})->write_checkpoint(checkpoint).value();
        const SafetensorsFile weights = SafetensorsFile::open(checkpoint / "model.safetensors").value();
        EXPECT_EQ(weights.names().size(), 2U * 7U * 2U);
        EXPECT_EQ(SafetensorsFile::open(checkpoint / "optimizer.safetensors").value().names().size(), 2U * 28U)
            << "two moments of each";
        const auto second = make(options(dropout));
        train_step(*second, 11);
        ASSERT_TRUE(second->restore(checkpoint));
        for (std::uint64_t step = 3; step < 6; ++step) {
            train_step(*uninterrupted, step);
            train_step(*second, step);
        }
        EXPECT_EQ(adapter_hash(*second), adapter_hash(*uninterrupted));
    }
}

TEST_F(LoraStudent, DropoutIsOfTrainingAndOfTheMicroBatchNumber) {
    const auto student = make(options(0.5));
    const auto again = make(options(0.5));
    const auto without = make(options());
    train_step(*student, 0);
    train_step(*again, 0);
    train_step(*without, 0);
    EXPECT_EQ(adapter_hash(*student), adapter_hash(*again));
    EXPECT_NE(adapter_hash(*student), adapter_hash(*without));
    for (const double rate : {0.0, 0.5}) {
        const auto one = make(options(rate));
        const auto other = make(options(rate));
        for (std::uint64_t step = 0; step < 2; ++step) {
            train_step(*one, step);
            train_step(*other, step, 8);
        }
        EXPECT_EQ(adapter_hash(*one) == adapter_hash(*other), rate == 0.0) << "masks are of the micro-batch's number";
    }
    EXPECT_EQ(held_out(*student), held_out(*again));
    CausalLmStudentOptions exported = options();
    const fs::path out = folder_ / "out";
    student->snapshot({})->write_model(out).value();
    exported.student.model = out.string();
    EXPECT_EQ(held_out(*student), held_out(*make(exported))) << "evaluation drops nothing";
    CausalLmStudentOptions other = options(0.5);
    other.training.seed = 12;
    EXPECT_NE(adapter_hash(*make(other)), adapter_hash(*make(options(0.5)))) << "A is drawn from the seed";
}

TEST_F(LoraStudent, ACheckpointBesideAnotherBaseOrOfAnotherShapeIsRefused) {
    const auto student = make(options());
    train_step(*student, 0);
    const fs::path checkpoint = folder_ / "checkpoint";
    student->snapshot({})->write_checkpoint(checkpoint).value();
    CausalLmStudentOptions other = options();
    other.student.lora->alpha = 7;
    EXPECT_THAT(make(other)->restore(checkpoint).error().message, HasSubstr("lora_alpha is 6"));
    other = options();
    other.student.lora->target_modules = {"q_proj"};
    EXPECT_THAT(make(other)->restore(checkpoint).error().message, HasSubstr("lora_target_modules is ["));
    write_base(4);
    const auto refused = make(options())->restore(checkpoint);
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("base_weights_sha256 is "));
}

TEST_F(LoraStudent, ExportsAPeftFolderAndTheMergedModel) {
    CausalLmStudentOptions merging = options();
    merging.student.lora->merge = true;
    const auto student = make(merging);
    for (std::uint64_t step = 0; step < 4; ++step) {
        train_step(*student, step);
    }
    const fs::path out = folder_ / "out";
    fs::create_directory(out);
    test::write_bytes(out / "config.json", "{}");  // of another run, which would be taken for the model
    student->snapshot({})->write_model(out).value();
    EXPECT_FALSE(fs::exists(out / "config.json"));
    EXPECT_TRUE(fs::exists(out / "adapter_config.json"));
    EXPECT_THAT(SafetensorsFile::open(out / "adapter_model.safetensors").value().names(),
                testing::Contains("base_model.model.model.layers.1.mlp.down_proj.lora_B.weight"));

    CausalLmStudentOptions merged = test::random_options();
    merged.student.init = StudentInit::pretrained;
    merged.student.config_json.reset();
    merged.student.model = (out / "merged").string();
    const double loss = held_out(*student);
    EXPECT_NEAR(held_out(*make(merged)), loss, 1e-5 * loss);

    // And from there on.
    CausalLmStudentOptions next = options();
    next.student.model = out.string();
    EXPECT_EQ(held_out(*make(next)), loss);
    EXPECT_EQ(adapter_hash(*make(next)), adapter_hash(*student));
    next.student.lora->r = 8;
    EXPECT_THAT(refusal(next), StartsWith("/student/lora/r: is 8, but the adapter in "));
    next.student.lora->r = 4;
    next.student.lora->alpha = 8;
    EXPECT_THAT(refusal(next), StartsWith("/student/lora/alpha: is 8, but the adapter in "));
    next.student.lora->alpha = 6;
    next.student.lora->target_modules = {"q_proj"};
    EXPECT_THAT(refusal(next), StartsWith("/student/lora/target_modules: is another list"));
    next.student.lora.reset();
    EXPECT_THAT(refusal(next), testing::AllOf(StartsWith("/student/model: "), HasSubstr("give student.lora")));

    write_base(4);
    EXPECT_THAT(student->snapshot({})->write_model(out).error().message,
                HasSubstr("base: not merged: the weights are"));
}

TEST_F(LoraStudent, TargetsAreModulesThatThereAre) {
    CausalLmStudentOptions wanted = options();
    wanted.student.lora->target_modules = {"q_proj", "query"};
    EXPECT_EQ(refusal(wanted),
              "/student/lora/target_modules: the student has no linear module \"query\"; it has down_proj, gate_proj, "
              "k_proj, o_proj, q_proj, up_proj, v_proj");
    wanted.student.lora->target_modules = {"lm_head"};
    EXPECT_THAT(refusal(wanted), HasSubstr("no linear module \"lm_head\""));
    wanted.student.lora->target_modules = {"layers.1.self_attn.q_proj", "mlp.up_proj"};
    EXPECT_EQ(make(wanted)->parameter_count(), 4U * (64 + 2 * 80));
    EXPECT_TRUE(names_module("q_proj", "model.q_proj"));
    EXPECT_FALSE(names_module("proj", "model.q_proj")) << "parts of names are whole words";
}

TEST_F(LoraStudent, DamagedAdaptersAreRefusedByName) {
    const fs::path out = folder_ / "out";
    make(options())->snapshot({})->write_model(out).value();
    CausalLmStudentOptions next = options();
    next.student.model = out.string();
    const std::string name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
    const SafetensorsFile file = SafetensorsFile::open(out / "adapter_model.safetensors").value();
    NamedTensors whole;
    for (const std::string& tensor : file.names()) {
        whole.push_back({tensor, file.tensor(tensor).value()});
    }
    const auto with = [&](const std::function<void(NamedTensors&)>& change) {
        NamedTensors changed = whole;
        change(changed);
        write_safetensors(out / "adapter_model.safetensors", changed).value();
        return refusal(next);
    };
    const auto find = [&](NamedTensors& tensors) { return std::ranges::find(tensors, name, &NamedTensor::name); };
    EXPECT_THAT(with([&](NamedTensors& t) { t.erase(find(t)); }), HasSubstr("tensor " + name + " is missing"));
    EXPECT_THAT(with([&](NamedTensors& t) { find(t)->tensor = torch::zeros({4, 31}); }),
                HasSubstr("tensor " + name + " is Float [4, 31]; F32, F16 or BF16 of shape [4, 32]"));
    EXPECT_THAT(with([&](NamedTensors& t) { find(t)->tensor = torch::full({4, 32}, NAN); }),
                HasSubstr("tensor " + name + " holds NaN or infinity"));
    EXPECT_THAT(with([&](NamedTensors& t) { t.push_back({"base_model.model.lm_head.weight", torch::zeros({1})}); }),
                HasSubstr("base_model.model.lm_head.weight does not belong to an adapter of this model"));
    EXPECT_EQ(with([](NamedTensors&) {}), "");
    fs::remove(out / "adapter_model.safetensors");
    EXPECT_THAT(refusal(next), HasSubstr("adapter_model.safetensors: cannot open"));
}

TEST_F(LoraStudent, FitsWhereTrainingAllWeightsDoesNot) {
    CausalLmStudentOptions whole = options();
    whole.student.lora.reset();
    const std::uint64_t count = make(whole)->parameter_count();
    const std::uint64_t adapters = make(options())->parameter_count();
    whole.max_bytes = 4 * 4 * count - 1;
    EXPECT_THAT(refusal(whole), StartsWith("/student/model: a network of "));
    CausalLmStudentOptions lora = options();
    lora.max_bytes = 4 * count + 4 * 4 * adapters;
    EXPECT_EQ(refusal(lora), "");
    --lora.max_bytes;
    EXPECT_THAT(refusal(lora), HasSubstr(std::to_string(count) + " of them frozen, takes "));
}

}  // namespace
}  // namespace distilld::models
