#include "models/losses/tensor_loss.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <vector>

#include "base/join.hpp"

namespace distilld::models {
namespace {

using torch::Tensor;

Tensor kl(const Tensor& output, const Tensor& target, double temperature) {
    const Tensor log_q = torch::log_softmax(output / temperature, -1);
    const Tensor log_p = torch::log_softmax(target / temperature, -1);
    return temperature * temperature * (log_p.exp() * (log_p - log_q)).sum(-1).mean();
}

Tensor mse(const Tensor& output, const Tensor& target, double /*temperature*/) {
    return torch::mse_loss(output, target);
}

Tensor mae(const Tensor& output, const Tensor& target, double /*temperature*/) {
    return torch::l1_loss(output, target);
}

Tensor cosine(const Tensor& output, const Tensor& target, double /*temperature*/) {
    return (1 - torch::cosine_similarity(output, target, -1)).mean();
}

Tensor cross_entropy(const Tensor& output, const Tensor& target, double /*temperature*/) {
    const Tensor classes = output.reshape({-1, output.size(-1)});
    constexpr auto kIgnoreNone = std::numeric_limits<std::int64_t>::min();
    return torch::cross_entropy_loss(classes, target.reshape(-1).to(torch::kLong), {}, at::Reduction::Mean,
                                     kIgnoreNone);
}

struct Row {
    TensorLoss kind;
    Tensor (*value)(const Tensor& output, const Tensor& target, double temperature);
    bool over_last = false;  ///< needs a dimension besides that of the samples
    bool takes_labels = false;
};

constexpr std::array kRows{
    Row{TensorLoss::kl, kl, true},
    Row{TensorLoss::mse, mse},
    Row{TensorLoss::mae, mae},
    Row{TensorLoss::cosine, cosine, true},
    Row{TensorLoss::cross_entropy, cross_entropy, true, true},
};

const Row& row_of(TensorLoss kind) {
    const auto* found = std::ranges::find(kRows, kind, &Row::kind);
    if (found == kRows.end()) {
        throw std::logic_error("a loss without a row");
    }
    return *found;
}

}  // namespace

std::string shape_defect(const LossTerm& term, const Tensor& output, const Tensor& target) {
    const bool labels = row_of(term.kind).takes_labels;
    if (row_of(term.kind).over_last && output.dim() < 2) {
        return std::string("is compared with the output ") + shape_text(output.sizes()) + ", but " +
               to_string(term.kind) + " is over the last dimension of each sample, and there is none";
    }
    std::vector<std::int64_t> wanted = output.sizes().vec();
    if (labels) {
        wanted.pop_back();
    }
    const bool whole = torch::isIntegralType(target.scalar_type(), /*includeBool=*/false);
    if (labels && !whole) {
        return std::string("is ") + c10::toString(target.scalar_type()) + ", but cross_entropy takes the numbers of " +
               "classes, such as int64";
    }
    if (target.sizes() != wanted) {
        return "is " + shape_text(target.sizes()) + ", but for the output " + shape_text(output.sizes()) + " it must " +
               "be " + shape_text(wanted);
    }
    return {};
}

Tensor tensor_loss(const LossTerm& term, const Tensor& output, const Tensor& target) {
    const Row& row = row_of(term.kind);
    return row.value(output, row.takes_labels ? target : target.to(output.scalar_type()), term.temperature);
}

}  // namespace distilld::models
