#include <gtest/gtest.h>

#include <chrono>
#include <iostream>

#include "models/losses/distill_loss.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;

constexpr std::int64_t kRows = 1024;
constexpr std::int64_t kHidden = 512;
constexpr std::int64_t kTeacherHidden = 1024;
constexpr std::int64_t kVocabulary = 32768;
constexpr std::int64_t kTop = 64;

/// The fastest of some calls, in milliseconds.
double milliseconds_of(const DistillTargets& targets) {
    const Tensor hidden = torch::randn({kRows, kHidden});
    const Tensor head = 0.02 * torch::randn({kVocabulary, kHidden});
    double best = 1e9;
    for (int i = 0; i < 4; ++i) {
        DistillLossGradients gradients;
        const auto began = std::chrono::steady_clock::now();
        distill_loss(hidden, head, targets, {}, &gradients);
        best =
            std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count());
    }
    return best;
}

// For docs/tuning.md: unit_models_training --gtest_also_run_disabled_tests --gtest_filter='*PrintsItsSpeed'
TEST(DistillLoss, DISABLED_PrintsItsSpeed) {
    DistillTargets labels;
    labels.labels = torch::randint(0, kVocabulary, {kRows}, torch::kLong);
    DistillTargets topk = labels;
    topk.topk_ids = torch::arange(kTop).repeat({kRows, 1});
    topk.topk_probabilities = torch::full({kRows, kTop}, 0.9 / kTop);
    topk.tail_probability = torch::full({kRows}, 0.1F);
    topk.negative_entropy = torch::full({kRows}, -2.0F);
    DistillTargets states = labels;
    states.teacher_hidden = torch::randn({kRows, kTeacherHidden}).to(torch::kHalf);
    states.teacher_head = 0.02 * torch::randn({kVocabulary, kTeacherHidden});
    DistillTargets logits = labels;
    logits.teacher_logits = states.teacher_hidden.to(torch::kFloat).mm(states.teacher_head.t()).to(torch::kHalf);
    const double base = milliseconds_of(topk);
    std::cout << "top 64: " << base << " ms, full logits: " << milliseconds_of(logits) / base
              << " times that, hidden states: " << milliseconds_of(states) / base << " times" << std::endl;
}

}  // namespace
}  // namespace distilld::models
