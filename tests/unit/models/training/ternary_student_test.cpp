#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "models/training/student_network.hpp"
#include "models/weights/weight_folder.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/models/training/small_student.hpp"

/// Students whose linear modules are ternary.
namespace distilld::models {
namespace {

namespace fs = std::filesystem;
using test::make;
using test::TemporaryFolder;
using test::weights_hash;
using testing::HasSubstr;

CausalLmStudentOptions ternary_options(std::vector<std::string> modules = {}) {
    CausalLmStudentOptions options = test::random_options();
    options.student.quantization = Quantization::ternary;
    options.student.quantize_modules = std::move(modules);
    return options;
}

double held_out(Student& student) {
    return student.evaluate(*test::token_batch(40, 4)).ce_sum;
}

TEST(TernaryStudent, LearnsAndGoesOnFromACheckpointToTheSameBits) {
    const TemporaryFolder folder;
    const auto uninterrupted = make(ternary_options());
    const auto first = make(ternary_options());
    const double before = held_out(*first);
    EXPECT_NE(before, held_out(*make(test::random_options()))) << "it rounds";
    for (std::uint64_t step = 0; step < 6; ++step) {
        test::train_step(*uninterrupted, step);
        test::train_step(*first, step);
    }
    EXPECT_LT(held_out(*first), before - 1);
    first->snapshot({})->write_checkpoint(folder / "checkpoint").value();
    const auto second = make(ternary_options());
    ASSERT_TRUE(second->restore(folder / "checkpoint"));
    for (std::uint64_t step = 6; step < 8; ++step) {
        test::train_step(*uninterrupted, step);
        test::train_step(*second, step);
    }
    EXPECT_EQ(weights_hash(*second), weights_hash(*uninterrupted));
    EXPECT_THAT(make(test::random_options())->restore(folder / "checkpoint").error().message,
                HasSubstr("ternary_modules is [\"model.layers.0."));
    EXPECT_THAT(make(ternary_options({"q_proj"}))->restore(folder / "checkpoint").error().message,
                HasSubstr("ternary_modules is [\"model.layers.0."));
}

TEST(TernaryStudent, ExportsWhatItLearnedAndItsThreeValues) {
    const TemporaryFolder folder;
    const auto student = make(ternary_options({"mlp.down_proj"}));
    test::train_step(*student, 0);
    student->snapshot({})->write_model(folder / "out").value();
    CausalLmStudentOptions again = ternary_options({"mlp.down_proj"});
    again.student.init = StudentInit::pretrained;
    again.student.config_json.reset();
    again.student.model = (folder / "out").string();
    EXPECT_EQ(held_out(*make(again)), held_out(*student)) << "the full-precision weights are all there is";

    const auto packed = SafetensorsFile::open(folder / "out" / "ternary" / "model.safetensors").value();
    const std::string name = "model.layers.1.mlp.down_proj.weight";
    EXPECT_EQ(packed.find(name)->dtype, torch::kUInt8);
    EXPECT_EQ(packed.find(name)->shape, (std::vector<std::int64_t>{8, 48}));
    EXPECT_EQ(packed.find(name + "_scale")->shape, std::vector<std::int64_t>{1});
    EXPECT_EQ(packed.find("model.layers.1.mlp.up_proj.weight")->dtype, torch::kFloat);
    const std::string config = test::read_bytes(folder / "out" / "ternary" / "config.json");
    EXPECT_THAT(config, HasSubstr("\"quant_method\": \"bitnet\""));
    EXPECT_THAT(config, HasSubstr("\"model.layers.1.mlp.up_proj\",\n"));
    EXPECT_THAT(test::read_bytes(folder / "out" / "config.json"), testing::Not(HasSubstr("quantization_config")));
}

TEST(TernaryStudent, ModulesAreThereAndCanBePacked) {
    const auto refusal = [](const CausalLmStudentOptions& options) {
        const auto student = make_causal_lm_student(options);
        return student ? "" : student.error().message;
    };
    EXPECT_EQ(refusal(ternary_options({"nothing"})),
              "/student/quantize_modules: the student has no linear module \"nothing\"; it has down_proj, gate_proj, "
              "k_proj, o_proj, q_proj, up_proj, v_proj");
    CausalLmStudentOptions odd = ternary_options();
    odd.student.config_json = R"({"vocab_size":61,"hidden_size":32,"intermediate_size":46,"num_hidden_layers":1,
        "num_attention_heads":4,"max_position_embeddings":32})";
    EXPECT_THAT(refusal(odd), HasSubstr("/student/quantize_modules: model.layers.0.mlp.gate_proj has 46 outputs"));
    odd.student.quantize_modules = {"q_proj", "down_proj"};
    EXPECT_EQ(refusal(odd), "");
}

}  // namespace
}  // namespace distilld::models
