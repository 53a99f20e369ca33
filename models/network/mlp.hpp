#pragma once

#include <torch/types.h>

#include <optional>
#include <vector>

#include "models/families/decoder_config.hpp"
#include "models/network/layer_place.hpp"
#include "models/network/linear.hpp"

namespace distilld::models {

/// Feed-forward network: gated, down(act(gate(x)) · up(x)) (SwiGLU with silu, arXiv 2002.05202), or down(act(up(x))).
class Mlp {
  public:
    /// Declares the gate (if there is one), up and down projections.
    explicit Mlp(const LayerPlace& place);

    /// `input` [.., H] -> [.., H].
    [[nodiscard]] torch::Tensor forward(const torch::Tensor& input, ProductKind kind = ProductKind::library) const;

    /// In the order of their parameters.
    [[nodiscard]] std::vector<Linear*> linears();

  private:
    Activation activation_;
    std::optional<Linear> gate_;
    Linear up_;
    Linear down_;
};

}  // namespace distilld::models
