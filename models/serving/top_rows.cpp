#include "models/serving/top_rows.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

namespace distilld::models {
namespace {

constexpr std::int64_t kSpare = 8;

}  // namespace

TopRows::TopRows(const torch::Tensor& values, std::uint32_t k, bool on_device) : values_(values.contiguous()), k_(k) {
    if (on_device) {
        const auto [top, ids] = values_.topk(std::min(values_.size(1), std::int64_t{k} + kSpare), 1);
        top_values_ = top.cpu();
        top_ids_ = ids.cpu();
    }
}

void TopRows::select(std::int64_t row, std::vector<TopEntry>& best) const {
    const auto size = static_cast<std::size_t>(values_.size(1));
    if (!top_values_.defined()) {
        select_top_k({static_cast<const float*>(values_.const_data_ptr()) + row * values_.size(1), size}, k_, best);
        return;
    }
    const std::int64_t count = top_values_.size(1);
    const float* top = static_cast<const float*>(top_values_.const_data_ptr()) + row * count;
    const auto* ids = static_cast<const std::int64_t*>(top_ids_.const_data_ptr()) + row * count;
    if (k_ > 0 && count < values_.size(1) && top[k_ - 1] == top[count - 1]) {
        const torch::Tensor whole = values_.select(0, row).cpu();
        select_top_k({static_cast<const float*>(whole.const_data_ptr()), size}, k_, best);
        return;
    }
    best.clear();
    for (std::int64_t i = 0; i < count; ++i) {
        best.push_back({top[i], static_cast<std::uint32_t>(ids[i])});
    }
    std::ranges::sort(best, better);
    best.resize(k_);
}

}  // namespace distilld::models
