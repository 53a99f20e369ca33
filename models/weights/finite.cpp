#include "models/weights/finite.hpp"

#include <cmath>

namespace distilld::models {

bool all_finite(const torch::Tensor& tensor) {
    if (tensor.numel() == 0) {
        return true;
    }
    // Both extremes are NaN when an element is.
    const torch::NoGradGuard no_grad;
    const auto [least, largest] = torch::aminmax(tensor.detach());
    return std::isfinite(least.item<double>()) && std::isfinite(largest.item<double>());
}

}  // namespace distilld::models
