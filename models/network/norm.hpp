#pragma once

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "models/families/decoder_config.hpp"
#include "models/network/parameter.hpp"

namespace distilld::models {

/// A residual stream and its norm; both have the shape and dtype of the stream.
struct NormedStream {
    torch::Tensor stream;
    torch::Tensor normed;
};

/// Root mean square norm (arXiv 1910.07467): w · x / √(mean(x²) + ε). Computed in fp32 (fp64 for fp64) and rounded to
/// the dtype of x before the multiplication with w, as transformers does.
class RmsNorm {
  public:
    /// Declares `name`.weight [size] in `group`.
    RmsNorm(ParameterGroup& group, const std::string& name, std::int64_t size, double epsilon);

    /// `input` [.., size] -> the same shape and dtype.
    [[nodiscard]] torch::Tensor forward(const torch::Tensor& input) const;
    /// The stream `input` [.., size] plus `addition`, if there is one, and the norm of the sum. On the CPU this is one
    /// pass over memory, and so is its backward.
    [[nodiscard]] NormedStream forward(const torch::Tensor& input, const std::optional<torch::Tensor>& addition) const;

  private:
    const Parameter* weight_;
    double epsilon_;
};

/// Layer norm (arXiv 1607.06450): w · (x − mean(x)) / √(var(x) + ε) + b.
class LayerNorm {
  public:
    /// Declares `name`.weight and `name`.bias [size] in `group`.
    LayerNorm(ParameterGroup& group, const std::string& name, std::int64_t size, double epsilon);

    /// As RmsNorm's.
    [[nodiscard]] NormedStream forward(const torch::Tensor& input, const std::optional<torch::Tensor>& addition) const;

  private:
    const Parameter* weight_;
    const Parameter* bias_;
    double epsilon_;
};

/// The norm of the residual stream; the family decides its kind.
class Norm {
  public:
    Norm(ParameterGroup& group, const std::string& name, const DecoderConfig& config);

    /// The stream `input` [.., hidden_size] plus `addition`, if there is one, and the norm of the sum. Whoever goes on
    /// with the stream takes it from the result, so that its gradient comes back through the norm.
    [[nodiscard]] NormedStream forward(const torch::Tensor& input,
                                       const std::optional<torch::Tensor>& addition = std::nullopt) const;

  private:
    std::variant<RmsNorm, LayerNorm> norm_;
};

}  // namespace distilld::models
