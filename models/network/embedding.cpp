#include "models/network/embedding.hpp"

#include <torch/autograd.h>
#include <torch/utils.h>

#include "models/network/gradient_order.hpp"

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
        const Tensor& table = saved[0];
        const Tensor ids = saved[1].flatten();
        const Tensor rows = gradients[0].reshape({-1, gradients[0].size(-1)});
        const Ticket* ticket = MicroBatchScope::current_ticket();
        if (ticket != nullptr && ticket->order().keeps_rows_of(table)) {
            ticket->order().keep_rows(*ticket, ids, rows);
        } else {
            const GradientTurn turn(table);
            add_rows(gradient_sum(table), table, ids, rows);
        }
        return {Tensor(), Tensor()};
    }
};

}  // namespace

Tensor look_up(const Parameter& table, const Tensor& ids) {
    const Tensor& held = table.held();
    return held.requires_grad() && torch::GradMode::is_enabled() ? LookedUp::apply(held, ids)
                                                                 : at::embedding(held, ids);
}

}  // namespace distilld::models
