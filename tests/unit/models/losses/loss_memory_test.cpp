#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iostream>
#include <memory>

#include "bench/live_bytes.hpp"
#include "models/losses/distill_loss.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;

constexpr std::int64_t kVocabulary = 32768;
constexpr std::int64_t kBlockRows = 128;  ///< for which intermediate tensors exist at once, with this vocabulary

enum class Teacher { topk, full, hidden };

struct Case {
    const char* what;
    Teacher teacher;
    double beta = 0;
};

/// Bytes that the loss of a chunk of so many rows and its gradients hold at their peak, with labels and tempered,
/// inputs and results included only as far as they are made here.
std::int64_t peak_of(const Case& wanted, torch::ScalarType type, std::int64_t chunk_rows) {
    constexpr std::int64_t kHidden = 4;
    const Teacher teacher = wanted.teacher;
    // Hidden states: of two chunks, whose logits exist one after the other.
    const std::int64_t rows = (teacher == Teacher::hidden ? 2 : 1) * chunk_rows;
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
    options.kd_ratio = 0.5;
    options.temperature = 2.0;
    options.divergence = divergence_of_beta(wanted.beta);
    options.chunk_rows = chunk_rows;
    return bench::peak_bytes_of([&] {
        DistillLossGradients gradients;
        const DistillLossSums sums = distill_loss(hidden, head, targets, options, &gradients);
        EXPECT_GT(sums.loss, 0);
    });
}

// What the header says: the logits of a chunk and up to 80 MiB beside them, which do not grow with the chunk. So chunks
// of one block and of two tell what those that training takes hold; these are the cases that held most.
TEST(DistillLoss, HoldsWhatItSays) {
    for (const auto type : {torch::kFloat, torch::kBFloat16}) {
        const std::int64_t block_logits = kBlockRows * kVocabulary * torch::elementSize(type);
        for (const Case& wanted :
             {Case{"top-k", Teacher::topk}, Case{"full logits", Teacher::full}, Case{"top-k, JSD", Teacher::topk, 0.5},
              Case{"full logits, JSD", Teacher::full, 0.5}, Case{"full logits, reverse KL", Teacher::full, 1.0},
              Case{"hidden states", Teacher::hidden}}) {
            const std::int64_t one = peak_of(wanted, type, kBlockRows);
            const std::int64_t two = peak_of(wanted, type, 2 * kBlockRows);
            // With hidden states the teacher's logits of the chunk come to the student's.
            const std::int64_t a_block = (wanted.teacher == Teacher::hidden ? 2 : 1) * block_logits;
            EXPECT_LE(two, 2 * a_block + 81 * kMebibyte) << wanted.what;
            // Products of libtorch may take 81 KiB more for more rows (seen on an AMD EPYC).
            EXPECT_NEAR(static_cast<double>(two - one), static_cast<double>(a_block), 0.1 * kMebibyte) << wanted.what;
            const std::int64_t whole = two + (loss_chunk_rows(kVocabulary, true) / kBlockRows - 2) * (two - one);
            std::cout << c10::toString(type) << ", " << wanted.what << ": " << whole / kMebibyte << " MiB a chunk"
                      << std::endl;
        }
    }
}

}  // namespace
}  // namespace distilld::models
