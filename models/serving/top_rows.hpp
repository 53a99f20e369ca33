#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "models/serving/top_k.hpp"

namespace distilld::models {

/// The k largest values of each row of a matrix. Off the CPU, the device selects a few more than k, and only these come
/// to the host: a row is only copied if its k-th value ties with the last of them.
class TopRows {
  public:
    /// `values` [n, V] in fp32, without NaN; k ≤ V.
    TopRows(const torch::Tensor& values, std::uint32_t k);

    /// select_top_k() of a row. Any thread.
    void select(std::int64_t row, std::vector<TopEntry>& best) const;

    /// As off the CPU, wherever `values` are; for tests.
    [[nodiscard]] static TopRows selected_there(const torch::Tensor& values, std::uint32_t k);

  private:
    TopRows(const torch::Tensor& values, std::uint32_t k, bool selects_there);

    torch::Tensor values_;
    std::uint32_t k_;
    torch::Tensor top_values_;  ///< [n, at most k + kSpare] on the CPU; undefined: `values_` are there
    torch::Tensor top_ids_;
};

}  // namespace distilld::models
