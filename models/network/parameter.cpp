#include "models/network/parameter.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/autograd.h>
#include <torch/utils.h>

#include <cmath>

#include <limits>
#include <utility>

#include "models/kernels/accumulate.hpp"
#include "models/network/gradient_order.hpp"

namespace distilld::models {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// A master in another dtype. Its backward adds the gradient to the master's itself.
struct ConvertedWeight : torch::autograd::Function<ConvertedWeight> {
    static torch::Tensor forward(AutogradContext* context, const torch::Tensor& master,
                                 const torch::Tensor& converted) {
        context->save_for_backward({master});
        return converted.detach();
    }
    static variable_list backward(AutogradContext* context, const variable_list& gradients) {
        add_gradient(context->get_saved_variables()[0], gradients[0]);
        return {torch::Tensor(), torch::Tensor()};
    }
};

}  // namespace

Parameter& declare_parameter(ParameterGroup& group, std::string name, std::vector<std::int64_t> shape,
                             InitialValues initial) {
    Parameter& parameter = group.parameters.emplace_back();
    parameter.name = std::move(name);
    parameter.master = torch::empty(shape, torch::TensorOptions().dtype(torch::kFloat).device(torch::kMeta));
    parameter.decays = shape.size() >= 2;
    parameter.initial = initial;
    return parameter;
}

void allocate_parameters(std::span<ParameterGroup> groups, torch::ScalarType type, const torch::Device& device) {
    for (ParameterGroup& group : groups) {
        for (Parameter& parameter : group.parameters) {
            const auto options = torch::TensorOptions().dtype(type).device(device);
            parameter.master = torch::empty(parameter.master.sizes(), options).requires_grad_(parameter.trainable);
        }
    }
}

void initialize_parameters(std::span<ParameterGroup> groups, std::uint64_t seed, double deviation) {
    const torch::NoGradGuard no_grad;
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    for (ParameterGroup& group : groups) {
        for (Parameter& parameter : group.parameters) {
            switch (parameter.initial) {
                case InitialValues::ones:
                    parameter.master.fill_(1.0);
                    break;
                case InitialValues::zeros:
                    parameter.master.zero_();
                    break;
                case InitialValues::normal: {
                    auto values = torch::empty(parameter.master.sizes(), torch::kFloat);
                    values.normal_(0.0, parameter.initial_scale * deviation, generator);
                    parameter.master.copy_(values);
                    break;
                }
            }
        }
    }
}

void keep_converted(Parameter& parameter, torch::Tensor value) {
    parameter.compute = std::move(value);
    parameter.master = torch::Tensor();
    parameter.trainable = false;
}

torch::Tensor weight_of(const Parameter& parameter, torch::ScalarType type) {
    if (parameter.compute.defined()) {
        return parameter.compute;
    }
    const bool records = parameter.master.requires_grad() && torch::GradMode::is_enabled();
    const bool alone = parameter.converted->alone;
    if (!records) {
        return alone ? parameter.converted->converted : parameter.master.to(type);
    }
    return ConvertedWeight::apply(parameter.master,
                                  alone ? parameter.converted->converted : parameter.master.detach().to(type));
}

torch::Tensor compute_weight(const Parameter& parameter, torch::ScalarType type) {
    if (parameter.compute.defined()) {
        return parameter.compute;
    }
    const torch::NoGradGuard no_grad;
    const torch::Tensor master = parameter.master.detach();
    if (master.scalar_type() == type) {
        return master;
    }
    ConvertedMaster& kept = *parameter.converted;
    const std::lock_guard lock(kept.mutex);
    if (kept.alone) {
        return kept.converted;
    }
    const auto version = static_cast<std::uint32_t>(master._version());
    if (!kept.master.defined() || !kept.master.is_alias_of(master) || kept.converted.scalar_type() != type) {
        kept.converted = master.to(type);
    } else if (kept.version != version) {
        kept.converted.copy_(master);
    }
    kept.master = master;
    kept.version = version;
    return kept.converted;
}

torch::Tensor drop_master(const Parameter& parameter, torch::ScalarType type) {
    const torch::NoGradGuard no_grad;
    torch::Tensor converted = compute_weight(parameter, type);
    ConvertedMaster& kept = *parameter.converted;
    const std::lock_guard lock(kept.mutex);
    if (!std::exchange(kept.alone, true)) {
        kept.master = torch::Tensor();
        torch::Tensor master = parameter.master;
        master.set_data(
            torch::full({1}, std::numeric_limits<double>::quiet_NaN(), master.options()).expand(master.sizes()));
    }
    return converted;
}

void add_gradient(const torch::Tensor& master, const torch::Tensor& gradient) {
    const torch::NoGradGuard no_grad;
    const GradientTurn turn(master);
    kernels::accumulate(gradient_sum(master), gradient, master.scalar_type());
}

std::uint64_t parameter_count(std::span<const ParameterGroup> groups) {
    std::uint64_t count = 0;
    for (const ParameterGroup& group : groups) {
        for (const Parameter& parameter : group.parameters) {
            count += static_cast<std::uint64_t>(parameter.held().numel());
        }
    }
    return count;
}

std::uint64_t trainable_count(std::span<const ParameterGroup> groups) {
    std::uint64_t count = 0;
    for (const ParameterGroup& group : groups) {
        for (const Parameter& parameter : group.parameters) {
            count += parameter.trainable ? static_cast<std::uint64_t>(parameter.held().numel()) : 0;
        }
    }
    return count;
}

std::vector<Parameter> all_parameters(std::span<const ParameterGroup> groups) {
    std::vector<Parameter> all;
    for (const ParameterGroup& group : groups) {
        all.insert(all.end(), group.parameters.begin(), group.parameters.end());
    }
    return all;
}

bool all_finite(const torch::Tensor& tensor) {
    if (tensor.numel() == 0) {
        return true;
    }
    // Both extremes are NaN if any element is.
    const torch::NoGradGuard no_grad;
    const auto [least, largest] = torch::aminmax(tensor.detach());
    return std::isfinite(least.item<double>()) && std::isfinite(largest.item<double>());
}

}  // namespace distilld::models
