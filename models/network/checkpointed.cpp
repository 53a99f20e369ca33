#include "models/network/checkpointed.hpp"

#include <torch/autograd.h>
#include <torch/custom_class.h>
#include <torch/utils.h>

#include <utility>

namespace distilld::models {
namespace {

using Run = std::function<torch::Tensor(const torch::Tensor&)>;

/// The function, in a form that an autograd context can store.
struct HeldRun final : torch::CustomClassHolder {
    explicit HeldRun(Run held) : run(std::move(held)) {}
    Run run;
};

class Recomputed : public torch::autograd::Function<Recomputed> {
  public:
    /// libtorch calls it with recording off.
    static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& input,
                                 const c10::intrusive_ptr<HeldRun>& held) {
        context->save_for_backward({input});
        context->saved_data["run"] = c10::IValue::make_capsule(held);
        return held->run(input);
    }

    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
        const auto held = c10::static_intrusive_pointer_cast<HeldRun>(context->saved_data["run"].toCapsule());
        const torch::Tensor input = context->get_saved_variables()[0].detach().requires_grad_(true);
        torch::Tensor output;
        {
            const torch::AutoGradMode recording(true);
            output = held->run(input);
        }
        torch::autograd::backward({output}, {gradients[0]});
        return {input.grad(), torch::Tensor()};
    }
};

}  // namespace

torch::Tensor checkpointed(Run run, const torch::Tensor& input) {
    // autograd visits only what depends on a tensor that needs a gradient.
    const torch::Tensor seen = input.requires_grad() ? input : input.detach().requires_grad_(true);
    return Recomputed::apply(seen, c10::make_intrusive<HeldRun>(std::move(run)));
}

}  // namespace distilld::models
