#include "models/losses/token_comparison.hpp"

#include <algorithm>
#include <cstdint>

namespace distilld::models {
namespace {

using torch::Tensor;

/// On the CPU: 4 MiB in fp32.
constexpr std::int64_t kCompareElements = std::int64_t{1} << 20;

Tensor accepted_mass(const Tensor& logits, const DistillTargets& rows, double temperature) {
    const auto type = logits.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
    const auto probabilities = [&](const Tensor& block) { return torch::softmax(block.to(type).div(temperature), 1); };
    Tensor total = torch::zeros({}, logits.options().dtype(torch::kDouble));
    const std::int64_t step =
        logits.is_cpu() ? std::max<std::int64_t>(1, kCompareElements / logits.size(1)) : logits.size(0);
    for (std::int64_t begin = 0; begin < logits.size(0); begin += step) {
        const std::int64_t end = std::min(begin + step, logits.size(0));
        Tensor q = probabilities(logits.slice(0, begin, end));
        Tensor p;
        if (rows.topk_ids.defined()) {
            q = q.gather(1, rows.topk_ids.slice(0, begin, end));
            p = rows.topk_probabilities.slice(0, begin, end).to(type);
        } else {
            p = probabilities(rows.teacher_logits.slice(0, begin, end));
        }
        total.add_(torch::minimum(p, q).sum(torch::kDouble));
    }
    return total;
}

}  // namespace

TokenComparison compare_tokens(const Tensor& logits, const DistillTargets& rows, double temperature) {
    const Tensor likeliest = rows.topk_ids.defined()
                                 ? rows.topk_ids.gather(1, rows.topk_probabilities.argmax(1, true)).squeeze(1)
                                 : rows.teacher_logits.argmax(1);
    return {logits.argmax(1).eq(likeliest).sum(torch::kDouble), accepted_mass(logits, rows, temperature)};
}

}  // namespace distilld::models
