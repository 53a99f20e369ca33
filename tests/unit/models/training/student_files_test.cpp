#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "models/checkpoint/store.hpp"
#include "models/network/causal_lm.hpp"
#include "models/training/causal_lm_student.hpp"
#include "models/weights/safetensors.hpp"
#include "tests/support/temporary_folder.hpp"
#include "tests/unit/models/training/small_student.hpp"

/// What a student writes and reads: checkpoints, exported models.
namespace distilld::models {
namespace {

namespace fs = std::filesystem;
using test::config_json;
using test::kVocabulary;
using test::make;
using test::random_options;
using test::read_bytes;
using test::TemporaryFolder;
using test::train_step;
using test::weights_hash;
using test::write_bytes;
using testing::HasSubstr;
using torch::Tensor;

StudentSpec pretrained(const fs::path& folder, Dtype dtype) {
    StudentSpec spec;
    spec.model = folder.string();
    spec.init = StudentInit::pretrained;
    spec.dtype = dtype;
    return spec;
}

TEST(StudentFiles, ACheckpointContinuesToTheSameBits) {
    const TemporaryFolder folder;
    CheckpointStore store(folder / "checkpoints", 2);
    for (const bool tied : {true, false}) {
        const CausalLmStudentOptions options = random_options(tied);
        const auto uninterrupted = make(options);
        const auto first = make(options);
        for (std::uint64_t step = 0; step < 3; ++step) {
            train_step(*uninterrupted, step);
            train_step(*first, step);
        }
        RunState state;
        state.step = 3;
        state.next_micro_batch = 6;
        state.tokens_seen = 1234567890123;
        state.spec_json = R"({"name": "a"})";
        const auto snapshot = first->snapshot(state);
        train_step(*first, 3);  // the snapshot no longer changes
        const fs::path committed = store.commit(3, *snapshot).value();
        EXPECT_EQ(store.newest().value().folder, committed);

        CausalLmStudentOptions other_seed = options;
        other_seed.training.seed = 99;
        const auto second = make(other_seed);
        train_step(*second, 17);  // leaves updates pending, which must not survive
        const Result<RunState> restored = second->restore(committed);
        ASSERT_TRUE(restored) << restored.error().message;
        EXPECT_EQ(restored->step, 3U);
        EXPECT_EQ(restored->next_micro_batch, 6U);
        EXPECT_EQ(restored->tokens_seen, 1234567890123U);
        EXPECT_EQ(restored->spec_json, state.spec_json);
        for (std::uint64_t step = 3; step < 6; ++step) {
            train_step(*uninterrupted, step);
            train_step(*second, step);
        }
        EXPECT_EQ(weights_hash(*uninterrupted), weights_hash(*second));
    }
}

TEST(StudentFiles, ADamagedOrForeignCheckpointIsRefusedAndChangesNothing) {
    const TemporaryFolder folder;
    const auto student = make(random_options());
    train_step(*student, 0);
    const fs::path checkpoint = folder / "checkpoint";
    ASSERT_TRUE(student->snapshot({})->write_checkpoint(checkpoint));
    EXPECT_FALSE(student->snapshot({})->write_checkpoint(checkpoint)) << "an existing folder is not overwritten";

    CausalLmStudentOptions other = random_options();
    other.student.config_json = config_json(true, 64);
    const Result<RunState> foreign = make(other)->restore(checkpoint);
    ASSERT_FALSE(foreign);
    EXPECT_EQ(foreign.error().kind, ErrorKind::invalid_input);
    EXPECT_THAT(foreign.error().message, HasSubstr("hidden_size is 32, the student's is 64"));

    train_step(*student, 1);
    const std::string before = weights_hash(*student);
    for (const std::string name : {"model.safetensors", "optimizer.safetensors"}) {
        const std::string whole = read_bytes(checkpoint / name);
        std::string damaged = whole;
        damaged[damaged.size() - 5] ^= 1;
        write_bytes(checkpoint / name, damaged);
        const Result<RunState> refused = student->restore(checkpoint);
        ASSERT_FALSE(refused);
        EXPECT_THAT(refused.error().message, HasSubstr(name));
        fs::remove(checkpoint / name);
        EXPECT_FALSE(student->restore(checkpoint));
        write_bytes(checkpoint / name, whole);
    }
    EXPECT_FALSE(student->restore(folder / "nothing"));
    EXPECT_EQ(weights_hash(*student), before);
    EXPECT_TRUE(student->restore(checkpoint));
    EXPECT_NE(weights_hash(*student), before);
}

/// A folder as somebody else might have published it: bf16 matrices, fp32 norms, tokenizer files.
void write_published_folder(const fs::path& folder) {
    const auto network =
        make_causal_lm(parse_model_config(config_json(false), {}).value(), ComputeDtype::fp32, torch::kCPU, 3);
    write_model_folder(folder, network->model_export()).value();
    NamedTensors tensors;
    for (const Parameter& parameter : all_parameters(network->groups())) {
        const Tensor tensor = parameter.master.detach();
        Tensor stored = tensor.dim() >= 2 ? tensor.to(torch::kBFloat16) : tensor.clone();
        if (parameter.name == "lm_head.weight") {
            stored.select(0, 0).fill_(-0.0);
        }
        tensors.push_back({parameter.name, stored});
    }
    write_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}}).value();
    write_bytes(folder / "tokenizer.json", "{\"any\": \"bytes\"}  \n");
    write_bytes(folder / "tokenizer_config.json", "{}");
}

TEST(StudentFiles, LearningRateZeroExportsTheVeryTensorsItRead) {
    const TemporaryFolder folder;
    const fs::path source = folder / "source";
    write_published_folder(source);
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
        CausalLmStudentOptions options = random_options();
        options.student = pretrained(source, dtype);
        options.training.weight_decay = 0.1;
        const auto student = make(options);
        for (std::uint64_t step = 0; step < 2; ++step) {
            EXPECT_GT(train_step(*student, step, 0.0).grad_norm, 0);
        }
        const fs::path exported = folder / (dtype == Dtype::fp32 ? "out32" : "out16");
        ASSERT_TRUE(student->snapshot({})->write_model(exported));

        const SafetensorsFile wanted = SafetensorsFile::open(source / "model.safetensors").value();
        const SafetensorsFile got = SafetensorsFile::open(exported / "model.safetensors").value();
        ASSERT_EQ(got.names(), wanted.names());
        for (const std::string& name : wanted.names()) {
            const Tensor a = wanted.tensor(name).value();
            const Tensor b = got.tensor(name).value();
            ASSERT_EQ(a.scalar_type(), b.scalar_type()) << name;
            ASSERT_EQ(a.sizes(), b.sizes()) << name;
            EXPECT_EQ(std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()), 0) << name;
        }
        EXPECT_EQ(read_bytes(exported / "tokenizer.json"), read_bytes(source / "tokenizer.json"));
        EXPECT_TRUE(fs::exists(exported / "tokenizer_config.json"));
        EXPECT_TRUE(fs::exists(exported / "generation_config.json"));
        EXPECT_TRUE(open_causal_lm(exported, ComputeDtype::fp32, torch::kCPU));
    }
}

TEST(StudentFiles, RoundingToTheExportGivesTheLossOfItsFiles) {
    const TemporaryFolder folder;
    const auto held_out = test::token_batch(40, 4);
    write_published_folder(folder / "source");
    CausalLmStudentOptions options = random_options();
    options.student = pretrained(folder / "source", Dtype::fp32);
    const auto student = make(options);
    train_step(*student, 0, 1e-3);
    ASSERT_TRUE(student->snapshot({})->write_model(folder / "out"));
    const double trained = student->evaluate(*held_out).ce_sum;
    EXPECT_TRUE(student->round_to_export());
    const double rounded = student->evaluate(*held_out).ce_sum;
    EXPECT_NE(rounded, trained);
    CausalLmStudentOptions again = random_options();
    again.student = pretrained(folder / "out", Dtype::fp32);
    EXPECT_EQ(make(again)->evaluate(*held_out).ce_sum, rounded);

    const auto exact = make(random_options());  // exports fp32
    const double before = exact->evaluate(*held_out).ce_sum;
    EXPECT_FALSE(exact->round_to_export());
    EXPECT_EQ(exact->evaluate(*held_out).ce_sum, before);
}

TEST(StudentFiles, TheExportFollowsTheTokenizerThatWasUsed) {
    const TemporaryFolder folder;
    write_published_folder(folder / "source");
    write_bytes(folder / "source" / "generation_config.json", R"({"eos_token_id": 2, "temperature": 0.6})");
    fs::create_directory(folder / "tokenizer");
    write_bytes(folder / "tokenizer" / "tokenizer.json", "another");
    CausalLmStudentOptions options = random_options();
    options.student = pretrained(folder / "source", Dtype::fp32);
    const auto export_with = [&](ExportTokenizer tokenizer) {
        const auto student = make(options);
        student->set_export_tokenizer(std::move(tokenizer));
        fs::remove_all(folder / "out");
        student->snapshot({})->write_model(folder / "out").value();
        return read_bytes(folder / "out" / "config.json") + read_bytes(folder / "out" / "generation_config.json");
    };
    const SpecialTokens special{std::nullopt, {7}, 8};
    const std::string named = export_with({folder / "tokenizer", special, false});
    EXPECT_THAT(named, HasSubstr("\"bos_token_id\": null,"));
    EXPECT_THAT(named, HasSubstr("\"eos_token_id\": 7,\n  \"pad_token_id\": 8,\n  \"temperature\": 0.6"));
    EXPECT_EQ(read_bytes(folder / "out" / "tokenizer.json"), "another");
    EXPECT_FALSE(fs::exists(folder / "out" / "tokenizer_config.json"));
    // The model's own: its config's ids stand when they hold the end of text, else they are mended.
    EXPECT_THAT(export_with({folder / "source", special, true}), HasSubstr("\"eos_token_id\": 7"));
    EXPECT_THAT(export_with({folder / "source", SpecialTokens{std::nullopt, {2}, std::nullopt}, true}),
                testing::AllOf(HasSubstr("\"bos_token_id\": 1"), HasSubstr("\"eos_token_id\": 2")));
    export_with({});
    EXPECT_FALSE(fs::exists(folder / "out" / "tokenizer.json"));

    // It says nothing about weights: a checkpoint goes on with another tokenizer.
    const auto student = make(options);
    student->set_export_tokenizer({folder / "tokenizer", special, false});
    ASSERT_TRUE(student->snapshot({})->write_checkpoint(folder / "checkpoint"));
    EXPECT_TRUE(make(options)->restore(folder / "checkpoint"));
}

TEST(StudentFiles, AnExportedStudentStartsTheNextJob) {
    const TemporaryFolder folder;
    const auto student = make(random_options());
    train_step(*student, 0);
    ASSERT_TRUE(student->snapshot({})->write_model(folder / "out"));
    CausalLmStudentOptions options = random_options();
    options.student = pretrained(folder / "out", Dtype::fp32);
    const auto next = make(options);
    EXPECT_EQ(weights_hash(*next), weights_hash(*student));
    EXPECT_EQ(next->parameter_count(), student->parameter_count());
    EXPECT_EQ(next->vocabulary_size(), kVocabulary);
    EXPECT_EQ(next->max_positions(), 32U);
}

TEST(StudentFiles, RandomInitTakesTheFoldersShapeAndTheSpecsChanges) {
    const TemporaryFolder folder;
    write_published_folder(folder / "source");
    CausalLmStudentOptions options = random_options();
    options.student.model = (folder / "source").string();
    options.student.config_json = R"({"num_hidden_layers": 1})";
    const auto small = make(options);
    options.student.config_json.reset();
    const auto same = make(options);
    EXPECT_LT(small->parameter_count(), same->parameter_count());
    EXPECT_EQ(small->vocabulary_size(), kVocabulary);
    EXPECT_EQ(weights_hash(*same), weights_hash(*make(options))) << "the seed decides";
    options.training.seed = 12;
    EXPECT_NE(weights_hash(*same), weights_hash(*make(options)));
}

}  // namespace
}  // namespace distilld::models
