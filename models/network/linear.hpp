#pragma once

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/network/parameter.hpp"

namespace distilld::models {

class LoraAdapter;

/// Properties of a linear module other than its sizes.
struct LinearForm {
    bool bias = false;
    bool transposed = false;     ///< the weight is [inputs, outputs], as in transformers' Conv1D
    double initial_scale = 1.0;  ///< scale of the standard deviation of its initial weights
};

/// How a product with a weight is made, without gradients.
enum class ProductKind {
    library,
    few_rows,  ///< on a CPU, so that no bit of a row depends on how many there are (decision 0014)
};

/// On a CPU, a row of the library's product has other bits if the product has fewer rows than this, because the library
/// chooses another kernel for the last rows of a thread's part. Measured with 1 to 16 threads (decision 0003).
[[nodiscard]] std::int64_t least_rows(const torch::Device& device);

/// `rows` [N, ..] with rows of zeros behind it, if it has fewer than `least`.
[[nodiscard]] torch::Tensor padded_rows(const torch::Tensor& rows, std::int64_t least);

/// y = x·Wᵀ + b in the dtype of x, plus the output of an adapter if there is one; or, as in BitNet b1.58 (ternary.hpp),
/// with ternary W and 8-bit x.
class Linear {
  public:
    /// Declares `name`.weight [outputs, inputs] and, with a bias, `name`.bias [outputs] in `group`.
    Linear(ParameterGroup& group, const std::string& name, std::int64_t outputs, std::int64_t inputs,
           const LinearForm& form);
    ~Linear();
    Linear(Linear&& other) noexcept;
    Linear& operator=(Linear&& other) noexcept;
    Linear(const Linear&) = delete;
    Linear& operator=(const Linear&) = delete;

    /// `input` [.., inputs] -> [.., outputs].
    [[nodiscard]] torch::Tensor forward(const torch::Tensor& input, ProductKind kind = ProductKind::library) const;

    /// The outputs of modules of the same form for one input. In training, backward sums the gradient of `input` within
    /// its products.
    [[nodiscard]] static std::vector<torch::Tensor> forward_all(const std::vector<const Linear*>& modules,
                                                                const torch::Tensor& input,
                                                                ProductKind kind = ProductKind::library);

    /// From now on, forward adds the adapter's output.
    void adapt(std::unique_ptr<const LoraAdapter> adapter);

    /// From now on, forward rounds weight and input. For a trained module that is not transposed.
    void make_ternary() noexcept { ternary_ = true; }

    /// Without ".weight".
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] std::int64_t outputs() const noexcept { return outputs_; }
    [[nodiscard]] std::int64_t inputs() const noexcept { return inputs_; }
    [[nodiscard]] bool transposed() const noexcept { return transposed_; }

  private:
    /// Forward records a gradient of the weight as it is.
    [[nodiscard]] bool trains_plainly() const;

    std::string name_;
    std::int64_t outputs_;
    std::int64_t inputs_;
    bool transposed_;
    const Parameter* weight_;
    const Parameter* bias_;                       ///< nullptr: none
    std::unique_ptr<const LoraAdapter> adapter_;  ///< may be null
    bool ternary_ = false;
};

/// input · weightᵀ + bias.
[[nodiscard]] torch::Tensor product(const torch::Tensor& input, const torch::Tensor& weight,
                                    const std::optional<torch::Tensor>& bias, ProductKind kind);

/// A linear module of a network, and the index of the group that its parameters are in.
struct LinearModule {
    std::size_t group = 0;
    Linear* linear = nullptr;  ///< the network's; valid while the network is
};

}  // namespace distilld::models
