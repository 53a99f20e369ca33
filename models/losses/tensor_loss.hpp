#pragma once

#include <torch/types.h>

#include <string>

#include "pipeline/core/spec_sections.hpp"

namespace distilld::models {

/// Why a term cannot compare these tensors: output and target [B, …]. Empty if it can. For cross_entropy, the last
/// dimension of the output is over classes, and the target is a whole number per class distribution.
[[nodiscard]] std::string shape_defect(const LossTerm& term, const torch::Tensor& output, const torch::Tensor& target);

/// The term without its weight, a scalar in the output's dtype; means are over all elements, or all distributions, so
/// that a batch has the mean of its samples. x is the output, y the target, T the temperature:
///   kl             T² · Σ p·(log p − log q) over the last dimension, p = softmax(y/T), q = softmax(x/T); then the mean
///   mse            mean of (x − y)²
///   mae            mean of |x − y|
///   cosine         mean of 1 − x·y / (‖x‖·‖y‖) over the last dimension, as torch.nn.functional.cosine_similarity
///   cross_entropy  mean of −log softmax(x)[y] over the last dimension
/// Throws c10::Error for a label that is not a class.
[[nodiscard]] torch::Tensor tensor_loss(const LossTerm& term, const torch::Tensor& output, const torch::Tensor& target);

}  // namespace distilld::models
