#include "pipeline/graph/batch_source.hpp"

#include <utility>

namespace distilld {

namespace {

constexpr std::size_t kRememberedSteps = 64;

}  // namespace

BatchSource::BatchSource(std::shared_ptr<const Dataset> dataset, BatchPlan plan, std::uint32_t micro_batches)
    : dataset_(std::move(dataset)), plan_(std::move(plan)), micro_batches_(micro_batches) {}

PlannedBatch BatchSource::batch(std::uint64_t number) {
    const std::uint64_t step = number / micro_batches_;
    auto found = step_target_tokens_.find(step);
    if (found == step_target_tokens_.end()) {
        found = step_target_tokens_.emplace(step, count_targets(step)).first;
        const auto oldest = step_target_tokens_.begin();
        if (step_target_tokens_.size() > kRememberedSteps && oldest != found) {
            step_target_tokens_.erase(oldest);
        }
    }
    auto tokens = std::make_shared<const TokenBatch>(dataset_->batch(number, plan_.rows_of(number)));
    return {std::move(tokens), found->second};
}

// The loss divides by the tokens of the whole step, so they are counted before its first micro-batch trains; the
// batches themselves are made one by one, so memory does not grow with their number.
std::uint64_t BatchSource::count_targets(std::uint64_t step) const {
    std::uint64_t tokens = 0;
    for (std::uint64_t n = step * micro_batches_; n < (step + 1) * micro_batches_; ++n) {
        for (const std::uint64_t row : plan_.rows_of(n)) {
            tokens += dataset_->target_tokens(row);
        }
    }
    return tokens;
}

}  // namespace distilld
