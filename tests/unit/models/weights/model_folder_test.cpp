#include "models/weights/export.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cmath>
#include <filesystem>
#include <functional>

#include "base/sha256.hpp"
#include "models/network/causal_lm.hpp"
#include "models/weights/safetensors.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/models/network/small_network.hpp"

/// Model folders out and in: write_model_folder(), WeightFolder, open_causal_lm().
namespace distilld::models {
namespace {

using test::file_count;
using test::ids;
using test::make_network;
using test::read_bytes;
using test::same_bits;
using test::save;
using test::small_config;
using test::TemporaryFolder;
using test::write_bytes;
using testing::HasSubstr;

NamedTensors masters(const CausalLm& network) {
    NamedTensors tensors;
    for (const Parameter& parameter : all_parameters(network.groups())) {
        tensors.push_back({parameter.name, parameter.master.detach()});
    }
    return tensors;
}

TEST(ModelFolder, SaveAndLoadKeepsEveryBit) {
    for (const bool tied : {false, true}) {
        const TemporaryFolder folder;
        auto network = make_network(small_config(tied));
        ASSERT_TRUE(save(*network, folder / "a"));
        EXPECT_EQ(file_count(folder / "a"), 3U);
        auto copy = open_causal_lm(folder / "a", ComputeDtype::fp32, torch::kCPU);
        ASSERT_TRUE(copy) << copy.error().message;
        EXPECT_EQ((*copy)->config().decoder.hidden_size, 32);
        EXPECT_EQ((*copy)->config().decoder.tie_word_embeddings, tied);
        ASSERT_TRUE(save(**copy, folder / "b"));
        for (const auto* name : {"model.safetensors", "config.json", "generation_config.json"}) {
            EXPECT_EQ(read_bytes(folder / "a" / name), read_bytes(folder / "b" / name)) << name;
        }
        const torch::NoGradGuard no_grad;
        EXPECT_TRUE(same_bits(network->forward(ids(2, 7)), (*copy)->forward(ids(2, 7))));
    }
}

TEST(ModelFolder, KeepsTheDtypeOfEachTensor) {
    const TemporaryFolder folder;
    const auto network = make_network(small_config());
    ASSERT_TRUE(save(*network, folder / "fp32"));
    std::filesystem::create_directory(folder / "half");
    std::filesystem::copy(folder / "fp32/config.json", folder / "half/config.json");
    write_bytes(folder / "half/generation_config.json", "{\"temperature\": 0.6}");
    auto tensors = masters(*network);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        auto& tensor = tensors[i].tensor;
        tensor = tensor.to(i % 5 == 1 ? torch::kHalf : i % 5 == 2 ? torch::kFloat : torch::kBFloat16);
    }
    ASSERT_TRUE(write_safetensors(folder / "half/model.safetensors", tensors, {{"format", "pt"}}));
    for (const auto dtype : {ComputeDtype::fp32, ComputeDtype::bf16}) {
        auto loaded = open_causal_lm(folder / "half", dtype, torch::kCPU);
        ASSERT_TRUE(loaded) << loaded.error().message;
        EXPECT_EQ((*loaded)->groups()[0].parameters[0].master.scalar_type(), torch::kFloat);
        ASSERT_TRUE(save(**loaded, folder / "again"));
        EXPECT_EQ(sha256_file(folder / "half/model.safetensors").value(),
                  sha256_file(folder / "again/model.safetensors").value());
        EXPECT_EQ(read_bytes(folder / "again/generation_config.json"), "{\"temperature\": 0.6}");
        EXPECT_THAT(read_bytes(folder / "again/config.json"), HasSubstr("\"torch_dtype\": \"bfloat16\""));
    }
}

TEST(ModelFolder, ReadsShards) {
    const TemporaryFolder folder;
    auto network = make_network(small_config());
    ASSERT_TRUE(save(*network, folder / "one"));
    std::filesystem::create_directory(folder / "two");
    std::filesystem::copy(folder / "one/config.json", folder / "two/config.json");
    const auto all = masters(*network);
    const auto middle = all.begin() + 9;
    const std::string first = "model-00001-of-00002.safetensors";
    const std::string second = "model-00002-of-00002.safetensors";
    ASSERT_TRUE(write_safetensors(folder / "two" / first, {all.begin(), middle}));
    ASSERT_TRUE(write_safetensors(folder / "two" / second, {middle, all.end()}));
    const auto index = [&](const std::string& odd_name, const std::string& odd_file) {
        std::string text = "{\"metadata\": {}, \"weight_map\": {";
        for (auto item = all.begin(); item != all.end(); ++item) {
            const auto file = item->name == odd_name ? odd_file : item < middle ? first : second;
            text += (item == all.begin() ? "\"" : ", \"") + item->name + "\": \"" + file + "\"";
        }
        write_bytes(folder / "two/model.safetensors.index.json", text + "}}");
        return open_causal_lm(folder / "two", ComputeDtype::fp32, torch::kCPU);
    };
    auto loaded = index("", "");
    ASSERT_TRUE(loaded) << loaded.error().message;
    const auto read = masters(**loaded);
    for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_TRUE(same_bits(read[i].tensor, all[i].tensor)) << all[i].name;
    }
    EXPECT_THAT(index("model.norm.weight", first).error().message,
                HasSubstr("tensor model.norm.weight is not in " + first));
    EXPECT_THAT(index("model.norm.weight", "../" + second).error().message, HasSubstr("a file name without a folder"));
    EXPECT_THAT(index("model.norm.weight", "absent.safetensors").error().message,
                HasSubstr("absent.safetensors: cannot open"));
    write_bytes(folder / "two/model.safetensors.index.json", "{}");
    EXPECT_THAT(open_causal_lm(folder / "two", ComputeDtype::fp32, torch::kCPU).error().message,
                HasSubstr("has no weight_map object"));
    write_bytes(folder / "two/model.safetensors.index.json", "{");
    EXPECT_THAT(open_causal_lm(folder / "two", ComputeDtype::fp32, torch::kCPU).error().message, HasSubstr("not JSON"));
}

TEST(ModelFolder, NamesTheTensorThatIsWrong) {
    const TemporaryFolder folder;
    const auto network = make_network(small_config(true));
    ASSERT_TRUE(save(*network, folder.path()));
    const auto with = [&](const std::function<void(NamedTensors&)>& change) {
        auto tensors = masters(*network);
        change(tensors);
        EXPECT_TRUE(write_safetensors(folder / "model.safetensors", tensors));
        const auto loaded = open_causal_lm(folder.path(), ComputeDtype::fp32, torch::kCPU);
        return loaded ? std::string() : loaded.error().message;
    };
    EXPECT_EQ(with([](auto&) {}), "");
    EXPECT_EQ(with([](auto& tensors) {
                  tensors.push_back({"lm_head.weight", torch::ones({61, 32})});
                  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", torch::ones({4})});
              }),
              "");
    EXPECT_THAT(with([](auto& tensors) { tensors.erase(tensors.begin() + 4); }),
                HasSubstr("tensor model.layers.0.self_attn.v_proj.weight is missing"));
    EXPECT_THAT(
        with([](auto& tensors) { tensors[2].tensor = tensors[2].tensor.t().narrow(0, 0, 31); }),
        HasSubstr("tensor model.layers.0.self_attn.q_proj.weight has shape [31, 32], the configuration asks for "
                  "[32, 32]"));
    EXPECT_THAT(with([](auto& tensors) { tensors[2].tensor = tensors[2].tensor.to(torch::kInt32); }),
                HasSubstr("has dtype Int; F32, F16 or BF16 is expected"));
    EXPECT_THAT(with([](auto& tensors) { tensors.push_back({"model.layers.3.extra", torch::ones({1})}); }),
                HasSubstr("1 tensors do not belong to this network: model.layers.3.extra"));
    std::filesystem::remove(folder / "model.safetensors");
    EXPECT_THAT(open_causal_lm(folder.path(), ComputeDtype::fp32, torch::kCPU).error().message,
                HasSubstr("has neither model.safetensors nor model.safetensors.index.json"));
}

TEST(ModelFolder, NumbersThatAreNotFiniteComeNeitherInNorOut) {
    const TemporaryFolder folder;
    const auto network = make_network(small_config());
    ASSERT_TRUE(save(*network, folder / "sound"));
    const auto sound = masters(*network);
    for (const auto type : {torch::kFloat, torch::kHalf, torch::kBFloat16}) {
        for (const float bad : {NAN, INFINITY, -INFINITY}) {
            auto tensors = sound;
            tensors[3].tensor = tensors[3].tensor.to(type).clone();
            tensors[3].tensor[1][2] = bad;
            ASSERT_TRUE(write_safetensors(folder / "sound/model.safetensors", tensors));
            const auto loaded = open_causal_lm(folder / "sound", ComputeDtype::bf16, torch::kCPU);
            ASSERT_FALSE(loaded);
            EXPECT_THAT(loaded.error().message,
                        HasSubstr("sound/model.safetensors: tensor " + tensors[3].name + " holds NaN or infinity"));
        }
    }
    {
        const torch::NoGradGuard no_grad;
        network->groups()[1].parameters[1].master[0][0] = 1e6;  // infinity as float16
    }
    EXPECT_TRUE(save(*network, folder / "wide"));
    network->groups()[1].parameters[1].saved = torch::kHalf;
    const auto refused = save(*network, folder / "narrow");
    ASSERT_FALSE(refused);
    EXPECT_THAT(refused.error().message, HasSubstr("narrow: not exported: model.layers.0.self_attn.q_proj.weight holds "
                                                   "numbers that are not finite as float16"));
    EXPECT_EQ(file_count(folder / "narrow"), 0U);
}

TEST(ModelFolder, ChecksTheFilesBeforeItAllocates) {
    const TemporaryFolder folder;
    ASSERT_TRUE(save(*make_network(small_config()), folder.path()));
    // Ten thousand times the memory of the machine, were it allocated.
    write_bytes(folder / "config.json", R"({"vocab_size": 16000000, "hidden_size": 131072, "num_attention_heads": 1024,
        "num_hidden_layers": 8, "intermediate_size": 131072})");
    EXPECT_THAT(open_causal_lm(folder.path(), ComputeDtype::fp32, torch::kCPU).error().message,
                HasSubstr("tensor model.embed_tokens.weight has shape [61, 32]"));
}

TEST(ModelFolder, WhatOnlyInfersIsReadInTheComputeDtypeOnce) {
    const TemporaryFolder folder;
    const auto network = make_network(small_config());
    ASSERT_TRUE(save(*network, folder.path()));
    const torch::NoGradGuard no_grad;
    for (const auto dtype : {ComputeDtype::fp32, ComputeDtype::bf16}) {
        const auto trained = open_causal_lm(folder.path(), dtype, torch::kCPU).value();
        const auto served =
            open_causal_lm(folder.path(), dtype, torch::kCPU, model_families(), WeightUse::inference).value();
        EXPECT_TRUE(same_bits(served->forward(ids(2, 7)), trained->forward(ids(2, 7))));
        for (const Parameter& parameter : all_parameters(served->groups())) {
            EXPECT_FALSE(parameter.master.defined());
            EXPECT_EQ(parameter.compute.scalar_type(), to_scalar_type(dtype));
        }
        EXPECT_EQ(parameter_count(served->groups()), parameter_count(network->groups()));
    }
}

TEST(TokenizerFiles, AreCopiedByteForByte) {
    const TemporaryFolder folder;
    std::filesystem::create_directory(folder / "from");
    std::filesystem::create_directory(folder / "to");
    write_bytes(folder / "from/tokenizer.json", std::string("{\"a\": 1}\n\0x", 11));
    write_bytes(folder / "from/chat_template.jinja", "{{ messages }}");
    write_bytes(folder / "from/README.md", "not a tokenizer file");
    ASSERT_TRUE(copy_tokenizer_files(folder / "from", folder / "to"));
    EXPECT_EQ(file_count(folder / "to"), 2U);
    EXPECT_EQ(read_bytes(folder / "to/tokenizer.json"), read_bytes(folder / "from/tokenizer.json"));
    EXPECT_EQ(read_bytes(folder / "to/chat_template.jinja"), "{{ messages }}");
    ASSERT_TRUE(copy_tokenizer_files(folder / "to", folder / "to"));
    EXPECT_THAT(copy_tokenizer_files(folder / "from", folder / "absent").error().message,
                HasSubstr("cannot open its folder"));
}

}  // namespace
}  // namespace distilld::models
