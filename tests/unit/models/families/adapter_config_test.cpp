#include "models/families/adapter_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/temporary_folder.hpp"

namespace distilld::models {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// As PEFT 0.21 writes it, with other values of some fields: `"use_dora": true`.
std::string config_with(const std::string& fields = "") {
    return R"({"alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null, "auto_mapping": null,
        "base_model_name_or_path": "base", "bias": "none", "corda_config": null, "ensure_weight_tying": false,
        "eva_config": null, "exclude_modules": null, "fan_in_fan_out": false, "inference_mode": true,
        "init_lora_weights": true, "layer_replication": null, "layers_pattern": null, "layers_to_transform": null,
        "loftq_config": {}, "lora_alpha": 24, "lora_bias": false, "lora_dropout": 0.25, "megatron_config": null,
        "megatron_core": "megatron.core", "modules_to_save": null, "peft_type": "LORA", "peft_version": "0.21.2",
        "qalora_group_size": 16, "r": 12, "rank_pattern": {}, "revision": null, "target_modules": ["v_proj", "q_proj"],
        "target_parameters": null, "task_type": "CAUSAL_LM", "trainable_token_indices": null, "use_dora": false,
        "use_qalora": false, "use_rslora": false)" +
           (fields.empty() ? "" : ", " + fields) + "}";
}

/// The same without the field that `fields` gives another value (no field may stand twice).
std::string changed(const std::string& name, const std::string& value) {
    std::string text = config_with();
    const auto at = text.find('"' + name + '"');
    if (at == std::string::npos) {
        return config_with('"' + name + "\": " + value);
    }
    const auto begin = text.find(": ", at) + 2;
    std::size_t end = begin;
    for (int depth = 0; depth > 0 || (text[end] != ',' && text[end] != '}'); ++end) {
        depth += text[end] == '[' || text[end] == '{' ? 1 : 0;
        depth -= text[end] == ']' || (text[end] == '}') ? 1 : 0;
    }
    return text.replace(begin, end - begin, value);
}

Result<AdapterConfig> read(const std::string& text) {
    const test::TemporaryFolder folder;
    folder.write("adapter_config.json", text);
    EXPECT_TRUE(is_adapter_folder(folder.path()));
    return read_adapter_config(folder.path());
}

TEST(AdapterConfig, OfPeftIsRead) {
    const AdapterConfig config = read(config_with()).value();
    EXPECT_EQ(config.base, "base");
    EXPECT_EQ(config.r, 12);
    EXPECT_EQ(config.alpha, 24);
    EXPECT_EQ(config.dropout, 0.25);
    EXPECT_THAT(config.target_modules, ElementsAre("v_proj", "q_proj"));
    EXPECT_THAT(read(changed("target_modules", "\"all-linear\"")).value().target_modules, IsEmpty());
}

TEST(AdapterConfig, WhatWouldComputeSomethingElseIsRefusedByName) {
    const std::pair<const char*, const char*> options[] = {
        {"use_dora", "true"},
        {"use_rslora", "true"},
        {"use_qalora", "true"},
        {"lora_bias", "true"},
        {"bias", "\"all\""},
        {"modules_to_save", "[\"lm_head\"]"},
        {"rank_pattern", "{\"q_proj\": 4}"},
        {"alpha_pattern", "{\"q_proj\": 4}"},
        {"layers_to_transform", "[1]"},
        {"layer_replication", "[[0, 1]]"},
        {"target_parameters", "[\"experts\"]"},
        {"trainable_token_indices", "[1]"},
        {"exclude_modules", "[\"q_proj\"]"},
        {"init_lora_weights", "\"pissa\""},
        {"peft_type", "\"IA3\""},
        {"target_modules", "\".*q_proj\""},
        {"an_option_of_tomorrow", "1"},
        {"r", "0"},
        {"lora_alpha", "\"8\""},
    };
    for (const auto& [name, value] : options) {
        const auto refused = read(changed(name, value));
        ASSERT_FALSE(refused) << name;
        EXPECT_THAT(refused.error().message, HasSubstr(std::string("adapter_config.json: /") + name + ": ")) << name;
    }
    EXPECT_TRUE(read(changed("init_lora_weights", "\"gaussian\"")));
    EXPECT_TRUE(read(changed("an_option_of_tomorrow", "null")));
}

TEST(AdapterConfig, WhatIsWrittenIsReadAgain) {
    const AdapterConfig config = read(to_adapter_config_json({"/models/base", 4, 0.5, 0.125, {"q_proj"}})).value();
    EXPECT_EQ(config.base, "/models/base");
    EXPECT_EQ(config.r, 4);
    EXPECT_EQ(config.alpha, 0.5);
    EXPECT_EQ(config.dropout, 0.125);
    EXPECT_THAT(config.target_modules, ElementsAre("q_proj"));
}

AdapterConfig beside(const std::filesystem::path& base) {
    AdapterConfig config;
    config.base = base.string();
    return config;
}

TEST(AdapterConfig, TheBaseIsAFolderThatIsThere) {
    const test::TemporaryFolder folder;
    std::filesystem::create_directory(folder / "base");
    test::write_bytes(folder / "base" / "config.json", "{}");
    folder.write("adapter_config.json", config_with());
    EXPECT_EQ(base_of_adapter(folder.path(), beside("base")).value(), folder / "base");
    EXPECT_EQ(base_of_adapter("/elsewhere", beside(folder / "base")).value(), folder / "base");
    EXPECT_THAT(
        base_of_adapter(folder.path(), beside("org/model")).error().message,
        HasSubstr("adapter_config.json: /base_model_name_or_path: is \"org/model\", which is not a folder with"));
    EXPECT_EQ(folder_with(folder.path(), "tokenizer.json"), folder / "base");
    folder.write("tokenizer.json", "{}");
    EXPECT_EQ(folder_with(folder.path(), "tokenizer.json"), folder.path());
    EXPECT_EQ(folder_with(folder / "base", "tokenizer.json"), folder / "base");
}

}  // namespace
}  // namespace distilld::models
