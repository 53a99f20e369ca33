#include "pipeline/graph/batch_source.hpp"

#include <utility>

namespace distilld {

namespace {

constexpr std::size_t kRememberedSteps = 64;

}  // namespace

BatchSource::BatchSource(std::shared_ptr<const Dataset> dataset, BatchPlan plan, std::uint32_t micro_batches,
                         std::optional<StepSlice> slice)
    : dataset_(std::move(dataset)),
      plan_(std::move(plan)),
      steps_(plan_.steps_of(micro_batches, slice.value_or(StepSlice{0, micro_batches}))),
      whole_steps_(steps_.whole()) {}

BatchSource::BatchSource(std::shared_ptr<const MixedDataset> dataset, BatchPlan plan, std::uint32_t micro_batches,
                         std::optional<StepSlice> slice)
    : BatchSource(std::shared_ptr<const Dataset>(dataset), std::move(plan), micro_batches, slice) {
    mixed_ = std::move(dataset);
}

PlannedBatch BatchSource::batch(std::uint64_t number) {
    const std::uint64_t step = steps_.step_of(number);
    auto found = step_target_tokens_.find(step);
    if (found == step_target_tokens_.end()) {
        found = step_target_tokens_.emplace(step, count_targets(step)).first;
        const auto oldest = step_target_tokens_.begin();
        if (step_target_tokens_.size() > kRememberedSteps && oldest != found) {
            step_target_tokens_.erase(oldest);
        }
    }
    const std::uint32_t index = steps_.index_of(number);
    const std::uint64_t of_all = whole_steps_.first_of(step) + index;
    auto tokens = std::make_shared<const TokenBatch>(dataset_->batch(of_all, plan_.rows_of(of_all)));
    PlannedBatch planned{std::move(tokens), found->second, index, number, steps_.step_of(number + 1) != step};
    if (mixed_) {
        split(planned);
    }
    return planned;
}

void BatchSource::split(PlannedBatch& planned) const {
    std::vector<std::vector<std::uint64_t>> rows(mixed_->parts().size());
    for (const std::uint64_t row : planned.tokens->row_ids) {
        const PartRow place = mixed_->place_of(row);
        planned.places.push_back({place.part, rows[place.part].size()});
        rows[place.part].push_back(place.row);
    }
    for (std::size_t part = 0; part < rows.size(); ++part) {
        const Dataset& of_teacher = *mixed_->parts()[part].rows;
        planned.parts.push_back(
            std::make_shared<const TokenBatch>(of_teacher.batch(planned.tokens->number, rows[part])));
    }
}

// The loss is divided by the tokens of the whole step, so they are counted before its first micro-batch trains. Batches
// are made one by one, so memory does not grow with their number.
std::uint64_t BatchSource::count_targets(std::uint64_t step) const {
    std::uint64_t tokens = 0;
    for (std::uint64_t n = whole_steps_.first_of(step); n < whole_steps_.first_of(step + 1); ++n) {
        for (const std::uint64_t row : plan_.rows_of(n)) {
            tokens += dataset_->target_tokens(row);
        }
    }
    return tokens;
}

}  // namespace distilld
