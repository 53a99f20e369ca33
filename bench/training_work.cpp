#include "bench/training_work.hpp"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "bench/scenario.hpp"
#include "bench/wait_for_device.hpp"
#include "models/network/compute_dtype.hpp"
#include "models/network/decoder.hpp"
#include "models/network/device.hpp"

namespace distilld::bench {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

double training_flops_per_token(const models::ModelConfig& config, std::uint32_t sequence_length) {
    // Declared, which takes no memory.
    const std::unique_ptr<models::CausalLm> network =
        models::make_decoder(config, models::ComputeDtype::fp32, {torch::kCPU});
    double multiplied = 0;
    const auto& groups = network->groups();
    for (std::size_t group = 1; group < groups.size(); ++group) {
        for (const models::Parameter& parameter : groups[group].parameters) {
            if (parameter.master.dim() == 2) {
                multiplied += static_cast<double>(parameter.master.numel());
            }
        }
    }
    const models::DecoderConfig& decoder = config.decoder;
    if (decoder.tie_word_embeddings) {  // the head is the table of the first group
        multiplied += static_cast<double>(network->head().master.numel());
    }
    const auto width = static_cast<double>(decoder.num_attention_heads * decoder.head_dim);
    const double attention = static_cast<double>(decoder.num_hidden_layers) * sequence_length * width;
    return 6 * (multiplied + attention);
}

std::string resolved_device(const std::string& device) {
    const Result<torch::Device> found = models::resolve_device(device);
    if (!found) {
        throw UsageError("--device: " + found.error().message);
    }
    return found->str();
}

double measure_gemm_rate(Dtype dtype, const std::string& device, double seconds) {
    const torch::Device place(device);
    const std::int64_t size = place.is_cpu() ? 1024 : 8192;
    const double operations = 2.0 * std::pow(static_cast<double>(size), 3);
    const torch::NoGradGuard no_grad;
    const auto options = torch::TensorOptions(place).dtype(models::to_scalar_type(models::resolve_dtype(dtype, place)));
    const torch::Tensor left = torch::randn({size, size}, options);
    const torch::Tensor right = torch::randn({size, size}, options);
    torch::Tensor product = torch::mm(left, right);
    wait_for(place);
    double best = 0;
    const Clock::time_point end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    do {
        const Clock::time_point began = Clock::now();
        torch::mm_out(product, left, right);
        wait_for(place);
        best = std::max(best, operations / std::chrono::duration<double>(Clock::now() - began).count());
    } while (Clock::now() < end);
    return best;
}

const char* resolved_dtype_name(Dtype dtype, const std::string& device) {
    return to_string(models::resolve_dtype(dtype, torch::Device(device)));
}

}  // namespace distilld::bench
