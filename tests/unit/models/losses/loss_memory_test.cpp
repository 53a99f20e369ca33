#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>

#include "models/losses/distill_loss.hpp"
#include "models/losses/live_bytes.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;

enum class Teacher { topk, full, hidden };

/// Bytes that one chunk's loss and gradients hold at their peak, inputs and results included only as far as they are
/// made here.
std::int64_t peak_of(Teacher teacher, torch::ScalarType type, double kd_ratio, double temperature, double beta = 0) {
    constexpr std::int64_t kVocabulary = 32768;
    constexpr std::int64_t kHidden = 4;
    // Hidden states: of two chunks, whose logits exist one after the other.
    const std::int64_t rows = (teacher == Teacher::hidden ? 2 : 1) * loss_chunk_rows(kVocabulary);
    auto generator = torch::make_generator<torch::CPUGeneratorImpl>(7);
    const Tensor hidden = torch::randn({rows, kHidden}, generator, torch::kFloat).to(type);
    const Tensor head = torch::randn({kVocabulary, kHidden}, generator, torch::kFloat).to(type);
    DistillTargets targets;
    targets.labels = torch::randint(0, kVocabulary, {rows}, generator, torch::kLong);
    if (teacher == Teacher::full) {
        targets.teacher_logits = torch::zeros({rows, kVocabulary}, torch::kHalf);
    } else if (teacher == Teacher::hidden) {
        targets.teacher_hidden = torch::zeros({rows, kHidden}, torch::kHalf);
        targets.teacher_head = torch::zeros({kVocabulary, kHidden}, type);
    } else {
        targets.topk_ids = torch::arange(8).repeat({rows, 1});
        targets.topk_probabilities = torch::full({rows, 8}, 0.1F);
        targets.tail_probability = torch::full({rows}, 0.2F);
        targets.negative_entropy = torch::full({rows}, -2.0F);
    }
    DistillLossOptions options;
    options.kd_ratio = kd_ratio;
    options.temperature = temperature;
    options.beta = beta;
    return peak_bytes_of([&] {
        DistillLossGradients gradients;
        const DistillLossSums sums = distill_loss(hidden, head, targets, options, &gradients);
        EXPECT_GT(sums.loss, 0);
    });
}

// What the header says: the logits of a chunk and up to 80 MiB beside them. Those are the ones that held most.
TEST(DistillLoss, HoldsWhatItSays) {
    for (const auto type : {torch::kFloat, torch::kBFloat16}) {
        const std::int64_t logits = type == torch::kFloat ? 256 * kMebibyte : 128 * kMebibyte;
        const std::int64_t bound = logits + 81 * kMebibyte;
        const auto check = [&](const char* what, Teacher teacher, double kd_ratio, double temperature,
                               double beta = 0) {
            const std::int64_t peak = peak_of(teacher, type, kd_ratio, temperature, beta);
            std::cout << c10::toString(type) << ", " << what << ": " << peak / kMebibyte << " MiB" << std::endl;
            EXPECT_LE(peak, bound) << what;
        };
        check("top-k and labels, tempered", Teacher::topk, 0.5, 2.0);
        check("full logits and labels, tempered", Teacher::full, 0.5, 2.0);
        check("top-k and labels, tempered, JSD", Teacher::topk, 0.5, 2.0, 0.5);
        check("full logits and labels, tempered, JSD", Teacher::full, 0.5, 2.0, 0.5);
        check("full logits and labels, tempered, reverse KL", Teacher::full, 0.5, 2.0, 1.0);
        const std::int64_t peak = peak_of(Teacher::hidden, type, 0.5, 2.0);
        std::cout << c10::toString(type) << ", hidden states and labels, tempered: " << peak / kMebibyte << " MiB"
                  << std::endl;
        EXPECT_LE(peak, bound + logits + 4 * kMebibyte);
    }
}

}  // namespace
}  // namespace distilld::models
