#include "pipeline/graph/batch_source.hpp"

#include <utility>

namespace distilld {

namespace {

constexpr std::size_t kCachedSteps = 64;

}  // namespace

BatchSource::BatchSource(std::shared_ptr<const Dataset> dataset, BatchPlan plan, std::uint32_t micro_batches)
    : dataset_(std::move(dataset)), plan_(std::move(plan)), micro_batches_(micro_batches) {}

PlannedBatch BatchSource::batch(std::uint64_t number) {
    const std::uint64_t step = number / micro_batches_;
    auto found = steps_.find(step);
    if (found == steps_.end()) {
        // The loss divides by the step's tokens, so the whole step is made with its first micro-batch.
        Step made;
        for (std::uint64_t n = step * micro_batches_; n < (step + 1) * micro_batches_; ++n) {
            auto tokens = std::make_shared<const TokenBatch>(dataset_->batch(n, plan_.rows_of(n)));
            made.target_tokens += tokens->target_tokens;
            made.batches.emplace(n, std::move(tokens));
        }
        found = steps_.emplace(step, std::move(made)).first;
        if (steps_.size() > kCachedSteps && steps_.begin() != found) steps_.erase(steps_.begin());
    }
    Step& cached = found->second;
    const auto kept = cached.batches.find(number);
    if (kept == cached.batches.end()) {
        return {std::make_shared<const TokenBatch>(dataset_->batch(number, plan_.rows_of(number))),
                cached.target_tokens};
    }
    PlannedBatch planned{kept->second, cached.target_tokens};
    cached.batches.erase(kept);
    return planned;
}

}  // namespace distilld
