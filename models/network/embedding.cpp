#include "models/network/embedding.hpp"

#include <optional>

namespace distilld::models {
namespace {

using torch::Tensor;

class LookedUp : public torch::autograd::Function<LookedUp> {
  public:
    static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& table, const Tensor& ids) {
        context->save_for_backward({table, ids});
        return at::embedding(table, ids);
    }

    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
        const auto saved = context->get_saved_variables();
        add_rows(saved[0], saved[1].flatten(), gradients[0].reshape({-1, gradients[0].size(-1)}));
        return {Tensor(), Tensor()};
    }

  private:
    /// Sums the rows of each id first and adds them to .grad as one, as if they were a gradient tensor of their own.
    static void add_rows(const Tensor& table, const Tensor& ids, const Tensor& rows) {
        const torch::NoGradGuard no_grad;
        if (!table.device().is_cpu()) {
            add_rows_on_device(table, ids, rows);
            return;
        }
        const auto [unique, place] = at::_unique(ids, /*sorted=*/true, /*return_inverse=*/true);
        const Tensor sums = torch::zeros({unique.size(0), rows.size(1)}, rows.options()).index_add_(0, place, rows);
        Tensor& total = table.mutable_grad();
        if (total.defined()) {
            total.index_add_(0, unique, sums);
        } else {
            total = torch::zeros_like(table).index_copy_(0, unique, sums);
        }
    }

    /// Does not wait for the number of distinct ids, which only the device knows. Sorts the ids and adds their rows in
    /// the order of arrival, so that the bits are the same each time.
    static void add_rows_on_device(const Tensor& table, const Tensor& ids, const Tensor& rows) {
        Tensor& total = table.mutable_grad();
        if (!total.defined()) {
            total = torch::zeros_like(table);
        }
        const c10::List<std::optional<Tensor>> places({std::optional<Tensor>(ids)});
        at::index_put_(total, places, rows, /*accumulate=*/true);
    }
};

}  // namespace

Tensor look_up(const Parameter& table, const Tensor& ids) {
    const Tensor& held = table.held();
    return held.requires_grad() && torch::GradMode::is_enabled() ? LookedUp::apply(held, ids)
                                                                 : at::embedding(held, ids);
}

}  // namespace distilld::models
