#include "models/losses/loss_speed.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "models/losses/distill_loss.hpp"
#include "models/losses/live_bytes.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;

DistillTargets random_targets(const LossShape& shape) {
    DistillTargets targets;
    targets.labels = torch::randint(0, shape.vocabulary, {shape.rows}, torch::kLong);
    if (shape.top_k == 0) {
        targets.teacher_logits = torch::randn({shape.rows, shape.vocabulary}).to(torch::kHalf);
        return targets;
    }
    const Tensor p = torch::softmax(2 * torch::randn({shape.rows, shape.top_k + 1}), 1);
    // Other ids in each row, all different within it.
    const Tensor first = torch::randint(0, shape.vocabulary, {shape.rows, 1}, torch::kLong);
    const std::int64_t step = std::max<std::int64_t>(1, shape.vocabulary / shape.top_k);
    targets.topk_ids = (first + torch::arange(shape.top_k) * step).remainder(shape.vocabulary);
    targets.topk_probabilities = p.slice(1, 0, shape.top_k).contiguous();
    targets.tail_probability = p.select(1, shape.top_k).contiguous();
    targets.negative_entropy = (p * p.log()).sum(1);
    return targets;
}

template <class Work>
double seconds_of(const Work& work) {
    const auto began = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

double median(std::vector<double> values) {
    std::ranges::nth_element(values, values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2));
    return values[values.size() / 2];
}

}  // namespace

LossSpeed measure_loss(const LossShape& shape) {
    const torch::NoGradGuard no_grad;
    torch::manual_seed(1);
    const auto type = shape.bf16 ? torch::kBFloat16 : torch::kFloat;
    const Tensor hidden = torch::randn({shape.rows, shape.hidden}).to(type);
    const Tensor head = (0.02 * torch::randn({shape.vocabulary, shape.hidden})).to(type);
    const DistillTargets targets = random_targets(shape);
    DistillLossOptions options;
    options.divergence = divergence_of_beta(shape.beta);
    options.chunk_rows = shape.chunk_rows;
    LossSpeed speed;
    speed.chunk_rows =
        std::min(shape.rows, shape.chunk_rows > 0 ? shape.chunk_rows : loss_chunk_rows(shape.vocabulary));

    const auto call = [&] {
        DistillLossGradients gradients;
        distill_loss(hidden, head, targets, options, &gradients);
    };
    speed.peak_bytes = static_cast<std::uint64_t>(peak_bytes_of(call));
    const Tensor chunk = hidden.slice(0, 0, speed.chunk_rows);
    std::vector<double> calls;
    std::vector<double> products;
    for (std::uint32_t turn = 0; turn < std::max(shape.repeat, 1U); ++turn) {
        products.push_back(seconds_of([&] { torch::mm(chunk, head.t()); }));
        calls.push_back(seconds_of(call));
    }
    const double row_flops = 2.0 * static_cast<double>(shape.hidden) * static_cast<double>(shape.vocabulary);
    speed.seconds = median(calls);
    speed.gemm_flops = row_flops * static_cast<double>(speed.chunk_rows) / median(products);
    // Logits, and the gradients of hidden states and head.
    speed.share_of_gemm = 3.0 * row_flops * static_cast<double>(shape.rows) / speed.gemm_flops / speed.seconds;
    return speed;
}

}  // namespace distilld::models
