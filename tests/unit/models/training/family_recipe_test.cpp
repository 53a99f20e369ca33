#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <string>
#include <vector>

#include "models/families/decoder_fields.hpp"
#include "models/families/llama.hpp"
#include "models/network/causal_lm.hpp"
#include "models/weights/weight_folder.hpp"
#include "tests/unit/models/training/small_student.hpp"

/// The recipe for a model family, followed for one that does not exist: a function each way between config.json and the
/// description, names, and a row. Nothing else in the program learns of it.
namespace distilld::models {
namespace {

namespace json = boost::json;
using test::random_options;
using test::Teacher;
using test::TemporaryFolder;
using test::train_step;
using testing::HasSubstr;

void parse_tower(JsonMembers& config, DecoderConfig& decoder) {
    decoder.rope_theta = 1e6;
    decoder.query_key_value_bias = true;
    read_decoder_fields(config, decoder);
    config.real_from("tower_epsilon", decoder.norm_epsilon, 0.0, false);
}

void write_tower(const DecoderConfig& decoder, json::object& config) {
    config["architectures"] = json::array{"TowerForCausalLM"};
    config["tower_epsilon"] = decoder.norm_epsilon;
    write_decoder_fields(decoder, config);
}

constexpr DecoderNames kTowerNames{
    .embedding = "tower.words",
    .layers = "tower.floors",
    .input_norm = "norm_1",
    .query = "look.query",
    .key = "look.key",
    .value = "look.value",
    .output = "look.mix",
    .post_attention_norm = "norm_2",
    .gate = "think.gate",
    .up = "think.up",
    .down = "think.down",
    .final_norm = "tower.roof",
    .head = "tower.door",
    .ignored_suffixes = {".draft"},
};

constexpr ModelFamily kRows[] = {
    {"tower", parse_tower, write_tower, kTowerNames},
    {"bungalow", parse_llama, write_llama, kLlamaNames},
};

CausalLmStudentOptions tower_options(const std::string& epsilon = "0.0009765625") {
    CausalLmStudentOptions options = random_options(false);
    options.student.config_json =
        R"({"model_type": "tower", "vocab_size": 61, "hidden_size": 32, "intermediate_size": 48,
            "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 32,
            "initializer_range": 0.1, "tower_epsilon": )" +
        epsilon + "}";
    options.families = kRows;
    return options;
}

TEST(FamilyRecipe, ARowTrainsAndComesBackFromItsOwnFiles) {
    const TemporaryFolder folder;
    const auto student = test::make(tower_options());
    double first = 0;
    double last = 0;
    for (int step = 0; step < 20; ++step) {
        const auto staged = student->stage(test::micro_batch(0, 4, Teacher::topk));
        student->train(*staged);
        const StepStats stats = student->finish_step(1e-2);
        EXPECT_TRUE(stats.finite);
        last = stats.loss_sum;
        first = step == 0 ? last : first;
    }
    EXPECT_LT(last, 0.8 * first);
    ASSERT_TRUE(student->snapshot({})->write_model(folder.path()));

    const WeightFolder weights = WeightFolder::open(folder.path()).value();
    EXPECT_THAT(weights.names(), testing::IsSupersetOf({"tower.words.weight", "tower.floors.1.look.query.bias",
                                                        "tower.floors.0.think.down.weight", "tower.door.weight"}));
    EXPECT_EQ(weights.file_of("tower.floors.0.look.mix.bias"), nullptr);
    const auto config = json::parse(test::read_bytes(folder / "config.json"));
    EXPECT_EQ(config.at("model_type").as_string(), "tower");
    EXPECT_EQ(config.at("architectures").at(0).as_string(), "TowerForCausalLM");

    const auto network = open_causal_lm(folder.path(), ComputeDtype::fp32, torch::kCPU, kRows);
    ASSERT_TRUE(network) << network.error().message;
    EXPECT_EQ((*network)->config().decoder.norm_epsilon, 0.0009765625);
    EXPECT_EQ((*network)->config().decoder.rope_theta, 1e6);
    EXPECT_EQ(parameter_count((*network)->groups()), student->parameter_count());

    const auto unknown = open_causal_lm(folder.path(), ComputeDtype::fp32, torch::kCPU);
    ASSERT_FALSE(unknown);
    EXPECT_THAT(unknown.error().message, HasSubstr("/model_type: is \"tower\"; only \"llama\""));
}

TEST(FamilyRecipe, MessagesNameTheFamiliesThatThereAre) {
    CausalLmStudentOptions options = tower_options("0");
    const auto bad_field = make_causal_lm_student(options);
    ASSERT_FALSE(bad_field);
    EXPECT_THAT(bad_field.error().message, HasSubstr("/student/config/tower_epsilon: is 0"));
    options.student.config_json = R"({"model_type": "castle"})";
    const auto bad_type = make_causal_lm_student(options);
    ASSERT_FALSE(bad_type);
    EXPECT_THAT(bad_type.error().message,
                HasSubstr("/student/config/model_type: is \"castle\"; only \"tower\", \"bungalow\" are supported"));
}

TEST(FamilyRecipe, TheFirstRowIsTakenWithoutAModelType) {
    EXPECT_EQ(parse_model_config("{}", {}, kRows).value().family->model_type, "tower");
    EXPECT_EQ(parse_model_config(R"({"model_type": "bungalow"})", {}, kRows).value().family->model_type, "bungalow");
}

}  // namespace
}  // namespace distilld::models
