#include "models/training/sample_tokens.hpp"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstring>

namespace distilld::models {
namespace {

using torch::Tensor;

/// The last `count` ids, [1, count] on the device.
Tensor newest(const std::vector<std::int32_t>& ids, std::size_t count, const torch::Device& device) {
    Tensor tensor = torch::empty({1, static_cast<std::int64_t>(count)}, torch::kLong);
    std::ranges::copy(ids.end() - static_cast<std::ptrdiff_t>(count), ids.end(),
                      tensor.mutable_data_ptr<std::int64_t>());
    return tensor.to(device);
}

}  // namespace

std::vector<std::int32_t> sample_tokens(CausalLm& network, std::vector<std::int32_t> prompt,
                                        const SampleOptions& options) {
    const torch::NoGradGuard no_grad;
    const auto& ends = network.config().decoder.eos_token_ids;
    const auto is_end = [&](std::int64_t id) {
        return (options.end && *options.end == id) || std::ranges::find(ends, id) != ends.end();
    };
    torch::Generator generator = torch::make_generator<torch::CPUGeneratorImpl>(options.seed);
    std::vector<std::int32_t> added;
    while (added.size() < options.max_tokens) {
        const auto count = std::min(prompt.size(), static_cast<std::size_t>(network.max_positions()));
        const Tensor hidden = network.forward(newest(prompt, count, network.device()));
        const Tensor logits =
            network.project(hidden.select(1, hidden.size(1) - 1)).select(0, 0).to(torch::kCPU, torch::kDouble);
        // A diverged student is shown as it is: NaN logits have no likeliest token, and none can be drawn.
        if (!torch::isfinite(logits).all().item<bool>()) {
            break;
        }
        const Tensor chosen =
            options.temperature > 0
                ? torch::softmax(logits / options.temperature, 0).multinomial(1, /*replacement=*/true, generator)
                : logits.argmax(0);
        const auto id = chosen.item<std::int64_t>();
        if (is_end(id)) {
            break;
        }
        prompt.push_back(static_cast<std::int32_t>(id));
        added.push_back(static_cast<std::int32_t>(id));
    }
    return added;
}

}  // namespace distilld::models
