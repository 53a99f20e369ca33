#pragma once

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "models/serving/top_k.hpp"

namespace distilld::models {

/// The k largest values of each row of a matrix. Off the CPU, the device selects a few more than k, and only these come
/// to the host: a row is only copied if its k-th value ties with the last of them.
class TopRows {
  public:
    /// `values` [n, V] in fp32, without NaN; k ≤ V. `on_device`: the device of `values` selects.
    TopRows(const torch::Tensor& values, std::uint32_t k, bool on_device);
    TopRows(const torch::Tensor& values, std::uint32_t k) : TopRows(values, k, !values.is_cpu()) {}

    /// select_top_k() of a row. Any thread.
    void select(std::int64_t row, std::vector<TopEntry>& best) const;

  private:
    torch::Tensor values_;
    std::uint32_t k_;
    torch::Tensor top_values_;  ///< [n, at most k + kSpare] on the CPU; undefined: `values_` are there
    torch::Tensor top_ids_;
};

}  // namespace distilld::models
