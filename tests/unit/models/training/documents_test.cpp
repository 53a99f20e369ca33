#include <gtest/gtest.h>
#include <torch/utils.h>

#include <cstring>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "models/losses/distill_loss.hpp"
#include "models/training/train_step.hpp"
#include "tests/unit/models/training/small_student.hpp"

// Several documents a row, kept apart: the loss and the gradients of the same documents with a row each.
namespace distilld::models {
namespace {

using test::kVocabulary;
using test::Teacher;
using torch::Tensor;

constexpr std::uint32_t kLength = 24;
constexpr std::uint32_t kWidth = 6;  ///< k

/// Longer than mistral's window here, two of one length, and one of a single position.
const std::vector<std::uint32_t> kLengths{9, 24, 4, 9, 1, 7, 15};
const std::vector<RowDocument> kPlaces{{0, 0, 9, 0}, {0, 9, 15, 6}, {1, 0, 24, 1}, {2, 0, 4, 2},
                                       {2, 4, 9, 3}, {2, 13, 1, 4}, {2, 14, 7, 5}};

std::string config_of(const std::string& family) {
    const std::string own = family == "mistral" ? R"("sliding_window":5,)"
                            : family == "qwen3" ? R"("head_dim":12,)"
                                                : "";
    return R"({"model_type":")" + family + "\"," + own +
           R"("vocab_size":61,"hidden_size":32,"intermediate_size":48,"num_hidden_layers":2,"num_attention_heads":4,
             "num_key_value_heads":2,"max_position_embeddings":32,"initializer_range":0.1,"tie_word_embeddings":true})";
}

std::unique_ptr<CausalLm> network_of(const std::string& family, ComputeDtype dtype) {
    return make_causal_lm(parse_model_config(config_of(family), {}).value(), dtype, torch::kCPU, 5);
}

/// One document a row, padded. Some labels are ignored.
std::shared_ptr<TokenBatch> documents_alone() {
    auto batch = std::make_shared<TokenBatch>();
    batch->rows = static_cast<std::uint32_t>(kLengths.size());
    batch->columns = kLength;
    batch->input_ids.resize(std::size_t{batch->rows} * kLength, 0);
    batch->labels.resize(batch->input_ids.size(), kIgnoredLabel);
    for (std::size_t row = 0; row < kLengths.size(); ++row) {
        for (std::size_t t = 0; t < kLengths[row]; ++t) {
            batch->input_ids[row * kLength + t] = static_cast<std::int32_t>((row * 31 + t * 7 + row * t) % kVocabulary);
            if ((row + t) % 5 != 3) {
                batch->labels[row * kLength + t] = static_cast<std::int32_t>((row * 13 + t * 11 + 5) % kVocabulary);
                ++batch->target_tokens;
            }
        }
        batch->lengths.push_back(static_cast<std::int32_t>(kLengths[row]));
    }
    return batch;
}

/// Copies what belongs to each document's positions to where they lie.
template <class T>
std::vector<T> placed(const std::vector<T>& alone, std::size_t width, T padding) {
    std::vector<T> packed(3 * kLength * width, padding);
    for (const RowDocument& document : kPlaces) {
        std::copy_n(alone.begin() + static_cast<std::ptrdiff_t>(document.id * kLength * width), document.length * width,
                    packed.begin() + static_cast<std::ptrdiff_t>((document.row * kLength + document.begin) * width));
    }
    return packed;
}

std::shared_ptr<TokenBatch> documents_packed() {
    const auto alone = documents_alone();
    auto batch = std::make_shared<TokenBatch>();
    batch->rows = 3;
    batch->columns = kLength;
    batch->input_ids = placed(alone->input_ids, 1, 0);
    batch->labels = placed(alone->labels, 1, kIgnoredLabel);
    batch->lengths = {24, 24, 21};
    batch->documents = kPlaces;
    batch->target_tokens = alone->target_tokens;
    return batch;
}

struct Bytes {
    std::vector<std::int32_t> ids;
    std::vector<float> values;
};

/// What a teacher says of the documents with a row each, or of the packed ones.
TeacherTargets targets_of(Teacher kind, bool packed) {
    const std::size_t positions = kLengths.size() * kLength;
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(77);
    const Tensor logits = 2 * torch::randn({static_cast<std::int64_t>(positions), kVocabulary}, generator);
    auto bytes = std::make_shared<Bytes>();
    const auto copy = [&](const Tensor& from, auto& to) {
        to.resize(static_cast<std::size_t>(from.numel()));
        std::memcpy(to.data(), from.contiguous().const_data_ptr(), to.size() * sizeof(to[0]));
    };
    TeacherTargets targets;
    targets.width = kind == Teacher::topk ? kWidth : kVocabulary;
    if (kind == Teacher::topk) {
        const auto [values, ids] = torch::log_softmax(logits, 1).topk(kWidth, 1);
        copy(ids.to(torch::kInt), bytes->ids);
        copy(values, bytes->values);
        bytes->ids = packed ? placed(bytes->ids, kWidth, 0) : bytes->ids;
    } else {
        copy(logits, bytes->values);
    }
    bytes->values = packed ? placed(bytes->values, targets.width, 0.0F) : bytes->values;
    targets.kind = kind == Teacher::topk ? TeacherTargets::Kind::topk : TeacherTargets::Kind::logits;
    targets.rows = packed ? 3 : static_cast<std::uint32_t>(kLengths.size());
    targets.columns = kLength;
    targets.ids = {ElementType::i32, std::as_bytes(std::span(bytes->ids))};
    targets.values = {ElementType::f32, std::as_bytes(std::span(bytes->values))};
    targets.owner = bytes;
    return targets;
}

double train(CausalLm& network, Teacher kind, bool packed) {
    MicroBatch batch;
    batch.tokens = packed ? documents_packed() : documents_alone();
    batch.step_target_tokens = batch.tokens->target_tokens;
    if (kind != Teacher::none) {
        batch.targets = targets_of(kind, packed);
    }
    DistillLossOptions loss;
    loss.kd_ratio = 0.5;
    loss.temperature = 2.0;
    const auto staged = stage_micro_batch(batch, {kVocabulary, kind != Teacher::none, 2.0, torch::kCPU});
    EXPECT_EQ(staged->target_tokens, batch.tokens->target_tokens);
    return accumulate_gradients(network, *staged, loss, {}).loss.item<double>();
}

struct Bound {
    ComputeDtype dtype;
    double relative;
};

class DocumentsOfARow : public testing::TestWithParam<std::tuple<std::string, Teacher, Bound>> {};

TEST_P(DocumentsOfARow, TrainAsDocumentsWithARowEach) {
    const auto& [family, kind, bound] = GetParam();
    const auto alone = network_of(family, bound.dtype);
    const auto packed = network_of(family, bound.dtype);
    const double wanted_loss = train(*alone, kind, false);
    EXPECT_NEAR(train(*packed, kind, true), wanted_loss, bound.relative * wanted_loss);
    const auto expected = all_parameters(alone->groups());
    const auto actual = all_parameters(packed->groups());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const Tensor wanted = expected[i].master.grad().to(torch::kDouble);
        const Tensor got = actual[i].master.grad().to(torch::kDouble);
        ASSERT_GT(wanted.norm().item<double>(), 0) << expected[i].name;
        EXPECT_LE((got - wanted).norm().item<double>(), bound.relative * wanted.norm().item<double>())
            << expected[i].name;
    }
}

INSTANTIATE_TEST_SUITE_P(Training, DocumentsOfARow,
                         testing::Combine(testing::Values("llama", "qwen3", "mistral"),
                                          testing::Values(Teacher::none, Teacher::topk, Teacher::logits),
                                          testing::Values(Bound{ComputeDtype::fp64, 1e-7},
                                                          Bound{ComputeDtype::fp32, 2e-6},
                                                          Bound{ComputeDtype::bf16, 2e-2})));

const DocumentGroups kGroups{{1, 9}, {2, 7}, {1, 3}};

TEST(DocumentGroups, ADocumentHasTheBitsThatItHasWhereverItLies) {
    for (const std::string family : {"llama", "qwen3", "mistral"}) {
        const auto network = network_of(family, ComputeDtype::fp32);
        const torch::NoGradGuard no_grad;
        const Tensor ids = torch::arange(26).remainder(kVocabulary).view({1, 26});
        const Tensor before = network->forward(ids, {}, kGroups);
        // Others' tokens, and another order of two of one length.
        Tensor other = torch::cat(
            {ids.narrow(1, 0, 9) + 20, ids.narrow(1, 16, 7), ids.narrow(1, 9, 7) + 9, ids.narrow(1, 23, 3)}, 1);
        const Tensor after = network->forward(other, {}, kGroups);
        EXPECT_TRUE(torch::equal(after.narrow(1, 9, 7), before.narrow(1, 16, 7))) << family;
        EXPECT_TRUE(torch::equal(after.narrow(1, 23, 3), before.narrow(1, 23, 3))) << family;
        EXPECT_FALSE(torch::equal(after.narrow(1, 16, 7), before.narrow(1, 9, 7))) << family;
    }
}

TEST(DocumentGroups, MustBeTheWholeInput) {
    const auto network = network_of("llama", ComputeDtype::fp32);
    EXPECT_THROW(network->forward(torch::zeros({1, 25}, torch::kLong), {}, kGroups), c10::Error);
    EXPECT_THROW(network->forward(torch::zeros({2, 26}, torch::kLong), {}, kGroups), c10::Error);
}

TEST(StagingOfDocuments, LeavesThePaddingOutAndPutsLikeLengthsTogether) {
    MicroBatch batch;
    batch.tokens = documents_packed();
    const auto staged = stage_micro_batch(batch, {kVocabulary, false, 1.0, torch::kCPU});
    EXPECT_EQ(staged->input_ids.size(1), 9 + 24 + 4 + 9 + 1 + 7 + 15);
    std::vector<std::pair<std::int64_t, std::int64_t>> groups;
    for (const DocumentGroup& group : staged->documents) {
        groups.emplace_back(group.count, group.length);
    }
    EXPECT_EQ(groups,
              (std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 24}, {1, 15}, {2, 9}, {1, 7}, {1, 4}, {1, 1}}));
    EXPECT_EQ(staged->rows.size(0), static_cast<std::int64_t>(batch.tokens->target_tokens));
    // Document 6 comes second; the first label that is ignored there is that of its position 2.
    EXPECT_EQ(staged->input_ids[0][24].item<std::int64_t>(), batch.tokens->input_ids[9]);
}

TEST(StagingOfDocuments, RefusesWhatDoesNotLieInItsRow) {
    for (const RowDocument wrong : {RowDocument{3, 0, 1, 0}, RowDocument{0, 20, 5, 0}, RowDocument{0, 0, 0, 0},
                                    RowDocument{0, 4294967295U, 2, 0}, RowDocument{0, 0, 25, 0}}) {
        const auto tokens = documents_packed();
        tokens->documents = {wrong};
        MicroBatch batch;
        batch.tokens = tokens;
        EXPECT_THROW((void)stage_micro_batch(batch, {kVocabulary, false, 1.0, torch::kCPU}), ErrorException);
    }
}

}  // namespace
}  // namespace distilld::models
