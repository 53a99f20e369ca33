#include "models/training/llama_student.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/sha256.hpp"
#include "models/checkpoint/manifest.hpp"
#include "models/checkpoint/store.hpp"
#include "models/network/llama_network.hpp"
#include "models/optimizers/gradients.hpp"
#include "models/training/staging.hpp"
#include "models/weights/safetensors.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld::models {
namespace {

using test::read_bytes;
using test::TemporaryFolder;
using test::write_bytes;

namespace fs = std::filesystem;
using testing::HasSubstr;
using torch::Tensor;

/// Networks this small gain nothing from a second thread, and its barriers spin when other tests share the cores.
const bool kOneThread = (at::set_num_threads(1), true);

constexpr std::uint32_t kVocabulary = 61;
constexpr std::uint32_t kColumns = 16;
constexpr std::uint32_t kTop = 6;

std::string config_json(bool tied, int hidden = 32) {
    return R"({"vocab_size":61,"hidden_size":)" + std::to_string(hidden) +
           R"(,"intermediate_size":48,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
             "max_position_embeddings":32,"initializer_range":0.1,"tie_word_embeddings":)" +
           (tied ? "true}" : "false}");
}

enum class Teacher { none, topk, logits };

/// Token rows that depend on their number only. Every seventh label is ignored, and the last two of each third row.
std::shared_ptr<TokenBatch> token_batch(std::uint64_t first_row, std::uint32_t rows) {
    auto batch = std::make_shared<TokenBatch>();
    batch->rows = rows;
    batch->columns = kColumns;
    for (std::uint32_t row = 0; row < rows; ++row) {
        const std::uint64_t number = first_row + row;
        for (std::uint32_t column = 0; column < kColumns; ++column) {
            batch->input_ids.push_back(static_cast<std::int32_t>((number * 31 + column * 7 + number * column) % 61));
            const bool ignored = (number * kColumns + column) % 7 == 3 || (number % 3 == 2 && column >= kColumns - 2);
            batch->labels.push_back(ignored ? kIgnoredLabel
                                            : static_cast<std::int32_t>((number * 31 + column * 11 + 5) % 61));
            batch->target_tokens += ignored ? 0 : 1;
        }
        batch->lengths.push_back(kColumns);
    }
    return batch;
}

struct TeacherBytes {
    std::vector<std::int32_t> ids;
    std::vector<float> values;
};

/// The teacher's answer for these rows; `noise` changes what it says of positions without a label.
TeacherTargets teacher_targets(const TokenBatch& tokens, std::uint64_t first_row, Teacher kind, float noise = 0) {
    auto bytes = std::make_shared<TeacherBytes>();
    TeacherTargets targets;
    targets.rows = tokens.rows;
    targets.columns = tokens.columns;
    for (std::uint32_t row = 0; row < tokens.rows; ++row) {
        auto generator = torch::make_generator<torch::CPUGeneratorImpl>(1000 + first_row + row);
        Tensor logits = 2 * torch::randn({kColumns, kVocabulary}, generator, torch::kFloat);
        for (std::uint32_t column = 0; column < kColumns; ++column) {
            if (tokens.labels[row * kColumns + column] == kIgnoredLabel) {
                logits[column] = noise * torch::arange(static_cast<int>(kVocabulary), torch::kFloat);
            }
        }
        if (kind == Teacher::topk) {
            const auto [log_p, ids] = torch::log_softmax(logits, 1).topk(kTop, 1);
            const Tensor narrow_ids = ids.to(torch::kInt).contiguous();
            const Tensor values = log_p.contiguous();
            bytes->ids.insert(bytes->ids.end(), narrow_ids.const_data_ptr<std::int32_t>(),
                              narrow_ids.const_data_ptr<std::int32_t>() + narrow_ids.numel());
            bytes->values.insert(bytes->values.end(), values.const_data_ptr<float>(),
                                 values.const_data_ptr<float>() + values.numel());
        } else {
            bytes->values.insert(bytes->values.end(), logits.const_data_ptr<float>(),
                                 logits.const_data_ptr<float>() + logits.numel());
        }
    }
    targets.kind = kind == Teacher::topk ? TeacherTargets::Kind::topk : TeacherTargets::Kind::logits;
    targets.width = kind == Teacher::topk ? kTop : kVocabulary;
    targets.ids = {ElementType::i32, std::as_bytes(std::span(bytes->ids))};
    targets.values = {ElementType::f32, std::as_bytes(std::span(bytes->values))};
    targets.owner = bytes;
    return targets;
}

MicroBatch micro_batch(std::uint64_t first_row, std::uint32_t rows, Teacher kind,
                       std::uint64_t step_target_tokens = 0) {
    const auto tokens = token_batch(first_row, rows);
    MicroBatch batch;
    batch.tokens = tokens;
    batch.step_target_tokens = step_target_tokens == 0 ? tokens->target_tokens : step_target_tokens;
    if (kind != Teacher::none) {
        batch.targets = teacher_targets(*tokens, first_row, kind);
    }
    return batch;
}

LlamaStudentOptions random_options(bool tied = true) {
    LlamaStudentOptions options;
    options.student.init = StudentInit::random;
    options.student.config_json = config_json(tied);
    options.student.dtype = Dtype::fp32;
    options.training.seed = 11;
    options.training.kd_ratio = 0.5;
    options.training.weight_decay = 0.01;
    options.training.max_grad_norm = 0.5;
    options.with_teacher = true;
    return options;
}

std::unique_ptr<Student> make(const LlamaStudentOptions& options) {
    auto student = make_llama_student(options);
    if (!student) {
        throw ErrorException(student.error());
    }
    return std::move(*student);
}

/// One optimizer step of two micro-batches with two rows each.
StepStats train_step(Student& student, std::uint64_t step, double rate = 1e-2, Teacher kind = Teacher::topk) {
    const std::uint64_t row = step * 4;
    const std::uint64_t total = token_batch(row, 4)->target_tokens;
    for (const std::uint64_t first : {row, row + 2}) {
        const auto staged = student.stage(micro_batch(first, 2, kind, total));
        student.train(*staged);
    }
    return student.finish_step(rate);
}

std::string weights_hash(Student& student) {
    const TemporaryFolder folder;
    student.snapshot({})->write_model(folder.path()).value();
    return sha256_file(folder / "model.safetensors").value();
}

class GradientAccumulation : public testing::TestWithParam<std::tuple<bool, Teacher>> {};

TEST_P(GradientAccumulation, EightMicroBatchesEqualOneBatchOfEight) {
    const auto [tied, kind] = GetParam();
    const LlamaConfig config = parse_llama_config(config_json(tied), "config").value();
    LlamaNetwork whole(config, ComputeDtype::fp32, torch::kCPU);
    LlamaNetwork parts(config, ComputeDtype::fp32, torch::kCPU);
    whole.initialize_random(5);
    parts.initialize_random(5);
    const StagingOptions staging{kVocabulary, kind != Teacher::none, 2.0, torch::kCPU};
    DistillLossOptions loss;
    loss.kd_ratio = 0.5;
    loss.temperature = 2.0;

    const MicroBatch all = micro_batch(0, 16, kind);
    const DistillLossSums whole_sums = accumulate_gradients(whole, *stage_micro_batch(all, staging), loss, {});
    double parts_loss = 0;
    for (std::uint64_t part = 0; part < 8; ++part) {
        const auto staged = stage_micro_batch(micro_batch(part * 2, 2, kind, all.step_target_tokens), staging);
        parts_loss += accumulate_gradients(parts, *staged, loss, {}).loss;
    }
    EXPECT_NEAR(parts_loss, whole_sums.loss, 1e-6 * whole_sums.loss);
    for (std::size_t g = 0; g < whole.groups().size(); ++g) {
        for (std::size_t i = 0; i < whole.groups()[g].parameters.size(); ++i) {
            const auto& [name, parameter] = whole.groups()[g].parameters[i];
            const Tensor wanted = parameter.grad().to(torch::kDouble);
            const Tensor got = parts.groups()[g].parameters[i].second.grad().to(torch::kDouble);
            ASSERT_GT(wanted.norm().item<double>(), 0) << name;
            EXPECT_LE((got - wanted).norm().item<double>(), 1e-6 * wanted.norm().item<double>()) << name;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(LlamaStudent, GradientAccumulation,
                         testing::Combine(testing::Bool(),
                                          testing::Values(Teacher::none, Teacher::topk, Teacher::logits)));

TEST(LlamaStudent, GradientsAgreeWithAutogradThroughTheWholeNetwork) {
    for (const bool tied : {true, false}) {
        const LlamaConfig config = parse_llama_config(config_json(tied), "config").value();
        LlamaNetwork ours(config, ComputeDtype::fp32, torch::kCPU);
        LlamaNetwork theirs(config, ComputeDtype::fp32, torch::kCPU);
        ours.initialize_random(5);
        theirs.initialize_random(5);
        const auto staged = stage_micro_batch(micro_batch(0, 4, Teacher::none), {kVocabulary, false, 1.0, torch::kCPU});
        accumulate_gradients(ours, *staged, {}, {});

        const Tensor hidden = theirs.forward(staged->input_ids);
        const Tensor logits = theirs.project(hidden.reshape({-1, hidden.size(-1)})).index_select(0, staged->rows);
        torch::nn::functional::cross_entropy(logits, staged->targets.labels).backward();
        for (std::size_t g = 0; g < ours.groups().size(); ++g) {
            for (std::size_t i = 0; i < ours.groups()[g].parameters.size(); ++i) {
                const auto& [name, parameter] = ours.groups()[g].parameters[i];
                const Tensor wanted = theirs.groups()[g].parameters[i].second.grad();
                EXPECT_LT((parameter.grad() - wanted).norm().item<double>(), 2e-6 * wanted.norm().item<double>())
                    << name;
            }
        }
    }
}

TEST(LlamaStudent, TheOverlappedOptimizerGivesTheBitsOfTheSerialOne) {
    for (const bool tied : {true, false}) {
        LlamaStudentOptions options = random_options(tied);
        options.training.overlap_optimizer = false;
        const auto serial = make(options);
        options.training.overlap_optimizer = true;
        const auto lazy = make(options);
        bool clipped = false;
        int pending = 0;
        for (std::uint64_t step = 0; step < 8; ++step) {
            const StepStats a = train_step(*serial, step);
            const StepStats b = train_step(*lazy, step);
            EXPECT_EQ(a.grad_norm, b.grad_norm);
            clipped = clipped || a.grad_norm > options.training.max_grad_norm;
            EXPECT_FALSE(serial->apply_one_pending_update());
            for (std::uint64_t i = 0; i < step % 5; ++i) {
                pending += lazy->apply_one_pending_update() ? 1 : 0;
            }
        }
        EXPECT_TRUE(clipped);
        EXPECT_GT(pending, 0);
        EXPECT_EQ(weights_hash(*serial), weights_hash(*lazy));
    }
}

TEST(LlamaStudent, ParallelFalseMeansNoPendingUpdates) {
    LlamaStudentOptions options = random_options();
    options.training.parallel = false;
    const auto student = make(options);
    train_step(*student, 0);
    EXPECT_FALSE(student->apply_one_pending_update());
}

TEST(LlamaStudent, TheLossFalls) {
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
        for (const Teacher kind : {Teacher::none, Teacher::topk, Teacher::logits}) {
            LlamaStudentOptions options = random_options();
            options.student.dtype = dtype;
            options.with_teacher = kind != Teacher::none;
            options.training.temperature = 2.0;
            const auto student = make(options);
            double first = 0;
            double last = 0;
            for (int step = 0; step < 40; ++step) {
                const auto staged = student->stage(micro_batch(0, 4, kind));
                const MicroBatchStats stats = student->train(*staged);
                const double mean = stats.loss_sum / static_cast<double>(stats.target_tokens);
                EXPECT_EQ(stats.kd_sum > 0, kind != Teacher::none);
                EXPECT_GT(stats.ce_sum, 0);
                first = step == 0 ? mean : first;
                last = mean;
                EXPECT_TRUE(student->finish_step(1e-2).finite);
            }
            EXPECT_LT(last, 0.6 * first) << "dtype " << static_cast<int>(dtype) << " teacher "
                                         << static_cast<int>(kind);
        }
    }
}

TEST(LlamaStudent, MaskedPositionsCarryNoLoss) {
    for (const Teacher kind : {Teacher::topk, Teacher::logits}) {
        std::vector<std::string> hashes;
        std::vector<double> losses;
        for (const float noise : {0.0F, 3.0F}) {
            const auto student = make(random_options());
            const auto tokens = token_batch(0, 4);
            MicroBatch batch{tokens, teacher_targets(*tokens, 0, kind, noise), tokens->target_tokens};
            const auto staged = student->stage(std::move(batch));
            losses.push_back(student->train(*staged).loss_sum);
            student->finish_step(1e-2);
            hashes.push_back(weights_hash(*student));
        }
        EXPECT_EQ(losses[0], losses[1]);
        EXPECT_EQ(hashes[0], hashes[1]);
    }
}

TEST(LlamaStudent, AMicroBatchWithoutTargetsChangesNothing) {
    const auto student = make(random_options());
    const auto reference = make(random_options());
    const auto empty = [] {
        auto tokens = token_batch(0, 2);
        std::fill(tokens->labels.begin(), tokens->labels.end(), kIgnoredLabel);
        tokens->target_tokens = 0;
        MicroBatch batch{tokens, teacher_targets(*tokens, 0, Teacher::topk), 0};
        return batch;
    };
    for (std::uint64_t step = 0; step < 2; ++step) {
        const auto staged = student->stage(empty());
        EXPECT_EQ(student->train(*staged).target_tokens, 0U);
        train_step(*student, step);
        train_step(*reference, step);
    }
    EXPECT_EQ(weights_hash(*student), weights_hash(*reference));
}

TEST(LlamaStudent, ANonFiniteStepIsSkipped) {
    for (const bool overlap : {false, true}) {
        LlamaStudentOptions options = random_options();
        options.training.overlap_optimizer = overlap;
        const auto student = make(options);
        const auto reference = make(options);
        train_step(*student, 0);
        train_step(*reference, 0);

        const auto tokens = token_batch(0, 2);
        MicroBatch bad{tokens, teacher_targets(*tokens, 0, Teacher::logits), tokens->target_tokens};
        std::vector<float> values(tokens->labels.size() * kVocabulary, std::numeric_limits<float>::quiet_NaN());
        bad.targets->values.bytes = std::as_bytes(std::span(values));
        const auto staged = student->stage(std::move(bad));
        student->train(*staged);
        const StepStats stats = student->finish_step(1e-2);
        EXPECT_FALSE(stats.finite);
        EXPECT_FALSE(std::isfinite(stats.grad_norm));

        // As if it had never been: weights, moments and step count.
        EXPECT_TRUE(train_step(*student, 1).finite);
        train_step(*reference, 1);
        EXPECT_EQ(weights_hash(*student), weights_hash(*reference));
    }
}

TEST(LlamaStudent, EvaluationIsTheMeanCrossEntropyAndAppliesWhatIsPending) {
    const auto student = make(random_options());
    const auto batch = token_batch(40, 4);
    const EvalStats before = student->evaluate(*batch);
    EXPECT_EQ(before.target_tokens, batch->target_tokens);
    EXPECT_NEAR(before.ce_sum / static_cast<double>(before.target_tokens), std::log(61.0), 1.0);
    LlamaStudentOptions options = random_options();
    options.with_teacher = false;
    const auto plain = make(options);
    const auto staged = plain->stage(micro_batch(40, 4, Teacher::none));
    EXPECT_EQ(plain->train(*staged).ce_sum, before.ce_sum);

    train_step(*student, 0);
    const EvalStats after = student->evaluate(*batch);
    EXPECT_NE(after.ce_sum, before.ce_sum);
    EXPECT_FALSE(student->apply_one_pending_update());
}

TEST(LlamaStudent, ACheckpointContinuesToTheSameBits) {
    const TemporaryFolder folder;
    CheckpointStore store(folder / "checkpoints", 2);
    for (const bool tied : {true, false}) {
        const LlamaStudentOptions options = random_options(tied);
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

        LlamaStudentOptions other_seed = options;
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

TEST(LlamaStudent, ADamagedOrForeignCheckpointIsRefusedAndChangesNothing) {
    const TemporaryFolder folder;
    const auto student = make(random_options());
    train_step(*student, 0);
    const fs::path checkpoint = folder / "checkpoint";
    ASSERT_TRUE(student->snapshot({})->write_checkpoint(checkpoint));
    EXPECT_FALSE(student->snapshot({})->write_checkpoint(checkpoint)) << "an existing folder is not overwritten";

    LlamaStudentOptions other = random_options();
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
    LlamaNetwork network(parse_llama_config(config_json(false), "config").value(), ComputeDtype::fp32, torch::kCPU);
    network.initialize_random(3);
    network.save(folder).value();
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (auto& [name, tensor] : network.named_parameters()) {
        Tensor stored = tensor.dim() >= 2 ? tensor.to(torch::kBFloat16) : tensor.clone();
        if (name == "lm_head.weight") {
            stored.select(0, 0).fill_(-0.0);
        }
        tensors.emplace_back(name, stored);
    }
    write_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}}).value();
    write_bytes(folder / "tokenizer.json", "{\"any\": \"bytes\"}  \n");
    write_bytes(folder / "tokenizer_config.json", "{}");
}

TEST(LlamaStudent, LearningRateZeroExportsTheVeryTensorsItRead) {
    const TemporaryFolder folder;
    const fs::path source = folder / "source";
    write_published_folder(source);
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
        LlamaStudentOptions options = random_options();
        options.student = StudentSpec{source.string(), StudentInit::pretrained, std::nullopt, dtype};
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
        EXPECT_TRUE(LlamaNetwork::open(exported, ComputeDtype::fp32, torch::kCPU));
    }
}

TEST(LlamaStudent, AnExportedStudentStartsTheNextJob) {
    const TemporaryFolder folder;
    const auto student = make(random_options());
    train_step(*student, 0);
    ASSERT_TRUE(student->snapshot({})->write_model(folder / "out"));
    LlamaStudentOptions options = random_options();
    options.student = StudentSpec{(folder / "out").string(), StudentInit::pretrained, std::nullopt, Dtype::fp32};
    const auto next = make(options);
    EXPECT_EQ(weights_hash(*next), weights_hash(*student));
    EXPECT_EQ(next->parameter_count(), student->parameter_count());
    EXPECT_EQ(next->vocabulary_size(), kVocabulary);
    EXPECT_EQ(next->max_positions(), 32U);
}

TEST(LlamaStudent, RandomInitTakesTheFoldersShapeAndTheSpecsChanges) {
    const TemporaryFolder folder;
    write_published_folder(folder / "source");
    LlamaStudentOptions options = random_options();
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

TEST(LlamaStudent, BadOptionsAreNamed) {
    const auto message = [](const LlamaStudentOptions& options) {
        const auto student = make_llama_student(options);
        return student ? std::string("no error") : student.error().message;
    };
    LlamaStudentOptions options = random_options();
    options.sequence_length = 33;
    EXPECT_THAT(message(options), HasSubstr("sequence_length 33 exceeds the student's max_position_embeddings of 32"));
    options = random_options();
    options.student.config_json.reset();
    EXPECT_THAT(message(options), HasSubstr("student.config or student.model"));
    options.student.init = StudentInit::pretrained;
    EXPECT_THAT(message(options), HasSubstr("student.model is required"));
    options.student.model = "/no/such/folder";
    EXPECT_THAT(message(options), HasSubstr("/no/such/folder"));
    options.student.init = StudentInit::random;
    EXPECT_THAT(message(options), HasSubstr("/no/such/folder"));
    options = random_options();
    options.student.config_json = R"({"hidden_size": 33, "num_attention_heads": 4})";
    EXPECT_THAT(message(options), HasSubstr("student.config"));
    options = random_options();
    options.device = "toaster";
    EXPECT_THAT(message(options), HasSubstr("toaster"));
}

}  // namespace
}  // namespace distilld::models
