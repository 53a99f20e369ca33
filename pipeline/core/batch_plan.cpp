#include "pipeline/core/batch_plan.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/random.hpp"

namespace distilld {

BatchPlan::BatchPlan(std::uint64_t rows, std::uint32_t batch_size, std::uint64_t seed)
    : rows_(rows), batch_size_(batch_size), seed_(seed) {}

std::vector<std::uint64_t> BatchPlan::rows_of(std::uint64_t number) const {
    std::vector<std::uint64_t> rows(batch_size_);
    for (std::uint32_t i = 0; i < batch_size_; ++i) {
        const std::uint64_t position = number * batch_size_ + i;
        rows[i] = permutation(position / rows_)[position % rows_];
    }
    return rows;
}

const std::vector<std::uint64_t>& BatchPlan::permutation(std::uint64_t epoch) const {
    // Two slots: a micro-batch may touch two epochs, and prefetch runs ahead of evaluation of the plan elsewhere.
    Cached& cached = cache_[epoch % 2];
    if (cached.order.size() != rows_ || cached.epoch != epoch) {
        cached.epoch = epoch;
        cached.order.resize(rows_);
        std::iota(cached.order.begin(), cached.order.end(), std::uint64_t{0});
        SplitMix64 random(seed_ ^ (epoch * 0xD1342543DE82EF95ULL + 0x2545F4914F6CDD1DULL));
        for (std::uint64_t i = rows_ - 1; i > 0; --i) {
            std::swap(cached.order[i], cached.order[random.below(i + 1)]);
        }
    }
    return cached.order;
}

std::uint64_t steps_of_epochs(std::uint64_t rows, std::uint32_t batch_size, std::uint32_t micro_batches,
                              double epochs) {
    const double per_step = static_cast<double>(batch_size) * micro_batches;
    // 0.29 epochs of 100 rows are 29 steps, although 100 · 0.29 is a little less in floating point.
    constexpr double kRounding = 1 + 1e-12;
    const double steps = std::floor(static_cast<double>(rows) * epochs / per_step * kRounding);
    return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(steps));
}

}  // namespace distilld
