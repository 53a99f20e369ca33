#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>

#include "models/network/parameter.hpp"

namespace distilld::models {

/// y = x·Wᵀ + b, in the dtype of x.
class Linear {
  public:
    /// Declares `name`.weight [outputs, inputs] and, with `bias`, `name`.bias [outputs] in `group`.
    Linear(ParameterGroup& group, const std::string& name, std::int64_t outputs, std::int64_t inputs, bool bias);

    /// `input` [.., inputs] -> [.., outputs].
    [[nodiscard]] torch::Tensor forward(const torch::Tensor& input) const;

  private:
    const Parameter* weight_;
    const Parameter* bias_;  ///< nullptr: none
};

}  // namespace distilld::models
