#include "pipeline/core/batch_plan.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>
#include <utility>

#include "base/random.hpp"

namespace distilld {

namespace {

/// A state for each (seed, number).
constexpr std::uint64_t state_of(std::uint64_t seed, std::uint64_t number) {
    return seed ^ (number * 0xD1342543DE82EF95ULL + 0x2545F4914F6CDD1DULL);
}

/// Fisher–Yates over order[first, end).
void shuffle(std::vector<std::uint64_t>& order, std::uint64_t first, std::uint64_t end, std::uint64_t state) {
    SplitMix64 random(state);
    for (std::uint64_t i = end - first - 1; i > 0; --i) {
        std::swap(order[first + i], order[first + random.below(i + 1)]);
    }
}

}  // namespace

BatchPlan::BatchPlan(std::uint64_t rows, std::uint32_t batch_size, std::uint64_t seed, RowOrder order)
    : rows_(rows),
      batch_size_(batch_size),
      seed_(seed),
      order_(std::move(order)),
      grouped_by_(order_.grouped_by == 0 ? batch_size : order_.grouped_by) {}

BatchPlan BatchPlan::once(const std::vector<std::uint64_t>& rows, std::uint32_t batch_size) {
    BatchPlan plan(rows.size(), batch_size, 0, {Shuffle::off, 0});
    plan.once_ = true;
    plan.append(rows);
    return plan;
}

std::uint64_t BatchPlan::append(const std::vector<std::uint64_t>& rows) {
    for (std::size_t first = 0; first < rows.size(); first += batch_size_) {
        const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(first);
        const auto left = static_cast<std::ptrdiff_t>(rows.size() - first);
        batches_.emplace_back(begin, begin + std::min<std::ptrdiff_t>(left, batch_size_));
    }
    return batches_.size();
}

std::vector<std::uint64_t> BatchPlan::rows_of(std::uint64_t number) const {
    if (once_) {
        return number < batches_.size() ? batches_[number] : std::vector<std::uint64_t>();
    }
    // An epoch that ends with a smaller micro-batch counts as if this micro-batch were full.
    const std::uint64_t of_epoch = order_.ends_epochs ? batches_of_epoch() * batch_size_ : rows_;
    std::vector<std::uint64_t> rows;
    for (std::uint64_t i = 0; i < batch_size_; ++i) {
        const std::uint64_t position = number * batch_size_ + i;
        if (position % of_epoch < rows_) {
            rows.push_back(permutation(position / of_epoch)[position % of_epoch]);
        }
    }
    return rows;
}

StepPlan BatchPlan::steps_of(std::uint32_t micro_batches, StepSlice slice) const {
    return {micro_batches, order_.ends_epochs ? batches_of_epoch() : 0, slice};
}

const std::vector<std::uint64_t>& BatchPlan::permutation(std::uint64_t epoch) const {
    // Two slots: a micro-batch may touch two epochs, and prefetch runs ahead of other users of the plan.
    Cached& cached = cache_[epoch % 2];
    if (cached.order.size() != rows_ || cached.epoch != epoch) {
        cached.epoch = epoch;
        cached.order.resize(rows_);
        std::iota(cached.order.begin(), cached.order.end(), std::uint64_t{0});
        const std::uint64_t state = state_of(seed_, epoch);
        if (order_.shuffle == Shuffle::full) {
            shuffle(cached.order, 0, rows_, state);
            group_by_length(cached.order, 0, rows_, epoch, state);
        } else if (order_.shuffle == Shuffle::blocks) {
            const std::uint64_t of_epoch = SplitMix64(state).next();
            for (std::uint64_t first = 0; first < rows_; first += order_.block_rows) {
                const std::uint64_t end = std::min(rows_, first + order_.block_rows);
                const std::uint64_t of_block = state_of(of_epoch, first / order_.block_rows);
                shuffle(cached.order, first, end, of_block);
                group_by_length(cached.order, first, end, epoch, of_block);
            }
        }
    }
    return cached.order;
}

void BatchPlan::group_by_length(std::vector<std::uint64_t>& order, std::uint64_t first, std::uint64_t end,
                                std::uint64_t epoch, std::uint64_t state) const {
    if (!order_.lengths || grouped_by_ == 1) {
        return;
    }
    const std::vector<std::uint32_t>& lengths = *order_.lengths;
    const auto at = [&order](std::uint64_t position) { return order.begin() + static_cast<std::ptrdiff_t>(position); };
    const std::uint64_t before = order_.ends_epochs ? first : epoch * rows_ + first;
    const std::uint64_t begun = before % grouped_by_;  // rows of a micro-batch that began before `first`
    std::uint64_t begin = begun == 0 ? first : first + grouped_by_ - begun;
    for (std::uint64_t window = 1; begin + grouped_by_ <= end; ++window) {
        const std::uint64_t batches = std::min(kLengthWindow, (end - begin) / grouped_by_);
        const std::uint64_t window_end = begin + batches * grouped_by_;
        // Rows of the same length keep their shuffled order.
        std::vector<std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>> by_length;
        for (std::uint64_t position = begin; position < window_end; ++position) {
            by_length.emplace_back(lengths.at(order[position]), position, order[position]);
        }
        std::ranges::sort(by_length);
        std::ranges::transform(by_length, at(begin), [](const auto& one) { return std::get<2>(one); });
        // Fisher–Yates over the micro-batches.
        SplitMix64 random(state_of(SplitMix64(state).next(), window));
        for (std::uint64_t i = batches - 1; i > 0; --i) {
            const std::uint64_t other = begin + random.below(i + 1) * grouped_by_;
            const std::uint64_t mine = begin + i * grouped_by_;
            if (other != mine) {
                std::swap_ranges(at(mine), at(mine + grouped_by_), at(other));
            }
        }
        begin = window_end;
    }
}

StepPlan::StepPlan(std::uint32_t micro_batches, std::uint64_t of_epoch, StepSlice slice)
    : micro_batches_(micro_batches), of_epoch_(of_epoch), slice_(slice) {
    const std::uint64_t rest = of_epoch % micro_batches;
    const std::uint64_t of_last = std::clamp<std::uint64_t>(rest, slice.begin, slice.end) - slice.begin;
    own_of_epoch_ = of_epoch / micro_batches * (slice.end - slice.begin) + of_last;
}

std::uint64_t StepPlan::first_of(std::uint64_t step) const noexcept {
    const std::uint64_t own = slice_.end - slice_.begin;
    if (of_epoch_ == 0) {
        return step * own;
    }
    const std::uint64_t steps = (of_epoch_ + micro_batches_ - 1) / micro_batches_;
    return step / steps * own_of_epoch_ + step % steps * own;
}

std::uint64_t StepPlan::step_of(std::uint64_t number) const noexcept {
    const std::uint64_t own = slice_.end - slice_.begin;
    if (of_epoch_ == 0) {
        return number / own;
    }
    const std::uint64_t steps = (of_epoch_ + micro_batches_ - 1) / micro_batches_;
    return number / own_of_epoch_ * steps + number % own_of_epoch_ / own;
}

std::uint32_t StepPlan::index_of(std::uint64_t number) const noexcept {
    return slice_.begin + static_cast<std::uint32_t>(number - first_of(step_of(number)));
}

StepSlice slice_of_rank(std::uint32_t micro_batches, std::uint32_t rank, std::uint32_t ranks) noexcept {
    const auto first = [&](std::uint64_t of) {
        return static_cast<std::uint32_t>((of * micro_batches + ranks - 1) / ranks);
    };
    return {first(rank), first(std::uint64_t{rank} + 1)};
}

std::uint64_t steps_of_epochs(std::uint64_t rows, std::uint64_t of_step, double epochs, bool ends_epochs) {
    const auto per_step = static_cast<double>(of_step);
    // 0.29 epochs of 100 steps are 29 steps and 0.07 are 7, although both products are slightly off in floating point.
    constexpr double kRounding = 1 + 1e-12;
    const auto count = static_cast<double>(rows);
    const double steps = ends_epochs ? std::ceil(std::ceil(count / per_step) * epochs / kRounding)
                                     : std::floor(count * epochs / per_step * kRounding);
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(steps));
}

}  // namespace distilld
