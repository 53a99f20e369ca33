#include "models/serving/teacher_engine.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>

#include "base/sha256.hpp"
#include "models/network/causal_lm.hpp"
#include "models/serving/make_served_head.hpp"
#include "models/weights/export.hpp"
#include "models/weights/safetensors.hpp"
#include "tests/support/temporary_folder.hpp"

namespace distilld::models {
namespace {

constexpr std::uint32_t kVocabulary = 203;

ModelConfig small_config() {
    ModelConfig model;
    model.family = &model_families().front();
    DecoderConfig& config = model.decoder;
    config.vocab_size = kVocabulary;
    config.hidden_size = 64;
    config.intermediate_size = 112;
    config.num_hidden_layers = 2;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.head_dim = 16;
    config.max_position_embeddings = 128;
    config.initializer_range = 0.3;
    return model;
}

ScoreRequest request_of(std::uint32_t rows, std::uint32_t columns, std::uint32_t seed) {
    ScoreRequest request;
    request.rows = rows;
    request.columns = columns;
    request.top_k = 8;
    std::uint32_t state = seed;
    for (std::uint32_t i = 0; i < rows * columns; ++i) {
        state = state * 1664525U + 1013904223U;
        request.input_ids.push_back(static_cast<std::int32_t>((state >> 8U) % kVocabulary));
    }
    return request;
}

/// Every bit of an answer.
std::string bits(const ScoreResult& result) {
    std::string text;
    const auto add = [&](const auto& values) {
        text += std::to_string(values.size()) + ":";
        if (!values.empty()) {
            text.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
        }
    };
    add(result.topk_ids);
    add(result.topk_logprobs);
    add(result.tail_logprob);
    add(result.token_logprobs);
    add(result.logits_f16);
    add(result.logits_f32);
    add(result.hidden_half);
    add(result.hidden_f32);
    return text;
}

float from_half(std::uint16_t half) {
    return static_cast<float>(c10::Half(half, c10::Half::from_bits()));
}

class TeacherEngine : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        folder_ = new test::TemporaryFolder();
        const auto network = make_causal_lm(small_config(), ComputeDtype::fp32, torch::kCPU, 11);
        const auto saved = write_model_folder(folder_->path(), network->model_export());
        ASSERT_TRUE(saved) << saved.error().message;
    }
    static void TearDownTestSuite() {
        delete folder_;
        folder_ = nullptr;
    }
    static std::unique_ptr<TeacherScorer> load(Dtype dtype = Dtype::fp32, std::uint32_t threads = 1) {
        auto engine = load_teacher_engine(folder_->path(), dtype, threads);
        EXPECT_TRUE(engine) << engine.error().message;
        return std::move(*engine);
    }
    static inline test::TemporaryFolder* folder_ = nullptr;
};

TEST_F(TeacherEngine, SaysWhatItServes) {
    const auto engine = load(Dtype::bf16, 2);
    EXPECT_EQ(engine->model().vocabulary_size, kVocabulary);
    EXPECT_EQ(engine->model().max_positions, 128U);
    EXPECT_EQ(engine->model().dtype, "bf16");
    EXPECT_EQ(engine->model().threads, 2U);
    constexpr std::uint64_t kLayer = 2 * 64 + 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 112;
    EXPECT_EQ(engine->model().parameters, 2 * kVocabulary * 64 + 2 * kLayer + 64);
}

TEST_F(TeacherEngine, LogitsAreTheNetworksOwn) {
    const auto engine = load();
    ScoreRequest request = request_of(3, 7, 1);
    request.mode = ScoreRequest::Mode::logits;
    request.logits_type = ScoreRequest::LogitsType::f32;
    const auto wide = engine->score(request);
    ASSERT_TRUE(wide);

    const auto network = open_causal_lm(folder_->path(), ComputeDtype::fp32, torch::kCPU).value();
    const torch::NoGradGuard no_grad;
    const auto ids = torch::tensor(request.input_ids, torch::kInt64).reshape({3, 7});
    const auto expected = network->project(network->forward(ids).reshape({21, -1})).reshape({3, 7, kVocabulary});
    const auto ours = torch::tensor(wide->logits_f32).reshape({3, 7, kVocabulary});
    EXPECT_TRUE(torch::allclose(ours, expected, 1e-5, 1e-5));

    const auto logprobs = torch::log_softmax(expected, -1);
    for (std::int64_t row = 0; row < 3; ++row) {
        for (std::int64_t column = 0; column < 7; ++column) {
            const float ours_here = wide->token_logprobs[static_cast<std::size_t>(row * 7 + column)];
            if (column == 6) {
                EXPECT_EQ(ours_here, 0.0F);
            } else {
                const auto next = request.input_ids[static_cast<std::size_t>(row * 7 + column + 1)];
                EXPECT_NEAR(ours_here, logprobs[row][column][next].item<float>(), 1e-4);
            }
        }
    }

    request.logits_type = ScoreRequest::LogitsType::f16;
    request.token_logprobs = false;
    const auto narrow = engine->score(request);
    ASSERT_TRUE(narrow);
    EXPECT_TRUE(narrow->token_logprobs.empty());
    ASSERT_EQ(narrow->logits_f16.size(), wide->logits_f32.size());
    for (std::size_t i = 0; i < narrow->logits_f16.size(); ++i) {
        ASSERT_EQ(narrow->logits_f16[i], c10::Half(wide->logits_f32[i]).x);
    }
}

/// The head in the file that a server sends of it.
torch::Tensor read_head(const ServedHead& head) {
    const test::TemporaryFolder folder;
    const auto path = folder / "head.safetensors";
    std::ofstream(path, std::ios::binary) << head.piece(0, head.file_bytes());
    EXPECT_EQ(sha256_file(path).value(), head.sha256);
    return SafetensorsFile::open(path).value().tensor("lm_head.weight").value();
}

TEST_F(TeacherEngine, HiddenStatesTimesTheHeadAreTheLogits) {
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
        const auto engine = load(dtype);
        ScoreRequest request = request_of(3, 7, 1);
        request.mode = ScoreRequest::Mode::logits;
        request.logits_type = ScoreRequest::LogitsType::f32;
        const auto logits = torch::tensor(engine->score(request).value().logits_f32).reshape({21, kVocabulary});
        request.mode = ScoreRequest::Mode::hidden;
        request.hidden_type = ScoreRequest::HiddenType::f32;
        const auto wide = engine->score(request).value();
        EXPECT_TRUE(wide.logits_f32.empty() && wide.hidden_half.empty());
        EXPECT_EQ(wide.token_logprobs.size(), 21U);
        const auto head = read_head(engine->model().head).to(torch::kFloat);
        ASSERT_EQ(head.sizes(), (std::vector<std::int64_t>{kVocabulary, 64}));
        const auto states = torch::tensor(wide.hidden_f32).reshape({21, 64});
        // bf16 arithmetic rounds its logits to bf16; the states themselves are exact.
        const double rounding = dtype == Dtype::bf16 ? 1e-2 : 1e-5;
        EXPECT_TRUE(torch::allclose(states.mm(head.t()), logits, rounding, rounding));

        // The default: bf16 loses nothing of bf16, fp16 of fp32 rounds once.
        request.hidden_type = engine->model().hidden_type;
        const bool bf16 = dtype == Dtype::bf16;
        EXPECT_EQ(request.hidden_type, bf16 ? ScoreRequest::HiddenType::bf16 : ScoreRequest::HiddenType::f16);
        const auto half = engine->score(request).value();
        ASSERT_EQ(half.hidden_half.size(), wide.hidden_f32.size());
        for (std::size_t i = 0; i < half.hidden_half.size(); ++i) {
            ASSERT_EQ(half.hidden_half[i],
                      bf16 ? c10::BFloat16(wide.hidden_f32[i]).x : c10::Half(wide.hidden_f32[i]).x);
        }
    }
}

TEST(MakeServedHead, SendsTheSmallestTypeThatLosesNothing) {
    const auto values = torch::randn({5, 3}, torch::kFloat);
    for (const auto& [weight, dtype] : {std::pair{values, "F32"}, std::pair{values.to(torch::kBFloat16), "BF16"},
                                        std::pair{values.to(torch::kBFloat16).to(torch::kFloat), "BF16"},
                                        std::pair{values.to(torch::kHalf).to(torch::kFloat), "F16"},
                                        std::pair{torch::full({5, 3}, 1.1e30F), "F32"}}) {
        const ServedHead head = make_served_head(weight);
        EXPECT_EQ(head.dtype, dtype);
        EXPECT_TRUE(torch::equal(read_head(head).to(weight.scalar_type()), weight));
        std::string joined;
        for (std::uint64_t first = 0; first < head.file_bytes(); first += 7) {
            joined += head.piece(first, 7);
        }
        EXPECT_EQ(joined, head.piece(0, head.file_bytes()));
        EXPECT_EQ(head.piece(head.file_bytes(), 7), "");
    }
}

TEST_F(TeacherEngine, TopKIsTheHeadOfTheSortedLogSoftmax) {
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {  // bf16 logits tie often
        const auto engine = load(dtype);
        ScoreRequest request = request_of(2, 40, 5);
        request.mode = ScoreRequest::Mode::logits;
        request.logits_type = ScoreRequest::LogitsType::f32;
        const auto full = engine->score(request);
        ASSERT_TRUE(full);
        request.mode = ScoreRequest::Mode::topk;
        for (const std::uint32_t k : {1U, 8U, kVocabulary}) {
            request.top_k = k;
            const auto top = engine->score(request);
            ASSERT_TRUE(top);
            const auto logits = torch::tensor(full->logits_f32).reshape({80, kVocabulary});
            const auto logprobs = torch::log_softmax(logits, -1);
            const auto sorted = torch::sort(logprobs, /*stable=*/true, /*dim=*/-1, /*descending=*/true);
            const auto values = std::get<0>(sorted);
            const auto ids = std::get<1>(sorted);
            for (std::int64_t row = 0; row < 80; ++row) {
                double mass = 0;
                for (std::int64_t place = 0; place < k; ++place) {
                    const auto at = static_cast<std::size_t>(row * k + place);
                    ASSERT_EQ(top->topk_ids[at], ids[row][place].item<std::int64_t>()) << row << ", " << place;
                    ASSERT_EQ(top->topk_logprobs[at], c10::Half(values[row][place].item<float>()).x);
                    mass += std::exp(static_cast<double>(from_half(top->topk_logprobs[at])));
                }
                const float tail = top->tail_logprob[static_cast<std::size_t>(row)];
                EXPECT_NEAR(mass + std::exp(static_cast<double>(tail)), 1.0, 2e-3);
                if (k == kVocabulary) {
                    EXPECT_EQ(tail, kTailFloor);
                }
            }
        }
    }
}

TEST_F(TeacherEngine, AnswersDoNotDependOnWhatElseIsAsked) {
    for (const Dtype dtype : {Dtype::fp32, Dtype::bf16}) {
        for (const std::uint32_t threads : {1U, 2U}) {
            const auto engine = load(dtype, threads);
            std::vector<ScoreRequest> requests;
            for (const auto& [rows, columns] : {std::pair{1U, 1U},
                                                {1U, 2U},
                                                {1U, 3U},
                                                {1U, 5U},
                                                {1U, 32U},
                                                {1U, 32U},
                                                {4U, 32U},
                                                {3U, 33U},
                                                {8U, 100U}}) {
                requests.push_back(request_of(rows, columns, static_cast<std::uint32_t>(requests.size() + 1)));
            }
            requests[5].mode = ScoreRequest::Mode::logits;
            requests[6].mode = ScoreRequest::Mode::hidden;
            requests[6].hidden_type = ScoreRequest::HiddenType::f16;
            std::vector<std::string> alone;
            for (const auto& request : requests) {
                const auto result = load(dtype, threads)->score(request);  // a server that was never asked before
                ASSERT_TRUE(result);
                alone.push_back(bits(*result));
            }
            std::vector<std::size_t> order(requests.size());
            for (std::size_t i = 0; i < order.size(); ++i) {
                order[i] = i;
            }
            for (int round = 0; round < 3; ++round) {
                for (const std::size_t index : order) {
                    const auto result = engine->score(requests[index]);
                    ASSERT_TRUE(result);
                    EXPECT_EQ(bits(*result), alone[index]) << "request " << index;
                }
                std::rotate(order.begin(), order.begin() + 4, order.end());
                std::reverse(order.begin(), order.begin() + 5);
            }
        }
    }
}

TEST_F(TeacherEngine, PaddingDoesNotReachTheAnswer) {
    const auto engine = load();
    ScoreRequest request = request_of(2, 9, 21);
    request.lengths = {9, 4};
    const auto first = engine->score(request);
    ASSERT_TRUE(first);
    std::fill(request.input_ids.begin() + 13, request.input_ids.end(), -100);
    const auto second = engine->score(request);
    ASSERT_TRUE(second);
    EXPECT_EQ(bits(*first), bits(*second));
    EXPECT_LT(first->token_logprobs[9 + 2], 0.0F);
    EXPECT_EQ(first->token_logprobs[9 + 3], 0.0F);  // the row's last position
}

TEST_F(TeacherEngine, BrokenWeightsAreAnErrorNotAnAnswer) {
    const auto folder = *folder_ / "broken";
    {
        const auto network = make_causal_lm(small_config(), ComputeDtype::fp32, torch::kCPU, 12);
        const torch::NoGradGuard no_grad;
        // Finite, but for what is multiplied by it.
        network->groups().back().parameters[0].master.fill_(std::numeric_limits<float>::max());
        ASSERT_TRUE(write_model_folder(folder, network->model_export()));
    }
    const auto engine = load_teacher_engine(folder, Dtype::fp32, 1);
    ASSERT_TRUE(engine);
    for (const auto mode : {ScoreRequest::Mode::topk, ScoreRequest::Mode::logits}) {
        ScoreRequest request = request_of(1, 3, 1);
        request.mode = mode;
        const auto result = (*engine)->score(request);
        ASSERT_FALSE(result);
        EXPECT_EQ(result.error().kind, ErrorKind::internal);
    }
}

TEST_F(TeacherEngine, RefusesBadFoldersAndRequests) {
    const auto missing = load_teacher_engine(*folder_ / "nothing", Dtype::fp32, 1);
    ASSERT_FALSE(missing);
    EXPECT_THAT(missing.error().message, testing::HasSubstr("config.json"));

    const auto engine = load();
    ScoreRequest request = request_of(1, 4, 1);
    request.input_ids[2] = kVocabulary;
    const auto result = engine->score(request);
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().kind, ErrorKind::invalid_input);
    EXPECT_THAT(result.error().message, testing::HasSubstr("input_ids[0][2] is 203"));
}

}  // namespace
}  // namespace distilld::models
