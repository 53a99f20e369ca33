#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "models/families/decoder_config.hpp"
#include "models/families/model_family.hpp"
#include "models/network/linear.hpp"

namespace distilld::models {

/// Gated feed-forward network (SwiGLU, arXiv 2002.05202): down(silu(gate(x)) · up(x)).
class Mlp {
  public:
    /// Declares gate, up and down projection in `group`, their names after `prefix`.
    Mlp(ParameterGroup& group, const DecoderConfig& config, const DecoderNames& names, const std::string& prefix);

    /// `input` [.., H] -> [.., H].
    [[nodiscard]] torch::Tensor forward(const torch::Tensor& input) const;

    /// In the order of their parameters.
    [[nodiscard]] std::vector<Linear*> linears();

  private:
    Linear gate_;
    Linear up_;
    Linear down_;
};

}  // namespace distilld::models
