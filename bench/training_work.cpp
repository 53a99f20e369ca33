#include "bench/training_work.hpp"

#include <torch/torch.h>

#include <algorithm>
#include <chrono>

#include "models/network/compute_dtype.hpp"
#include "models/network/decoder.hpp"

namespace distilld::bench {

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

double measure_gemm_rate(Dtype dtype, double seconds) {
    using Clock = std::chrono::steady_clock;
    constexpr std::int64_t kSize = 1024;
    constexpr double kOperations = 2.0 * kSize * kSize * kSize;
    const torch::NoGradGuard no_grad;
    const auto type = models::to_scalar_type(models::resolve_dtype(dtype, torch::kCPU));
    const torch::Tensor left = torch::randn({kSize, kSize}).to(type);
    const torch::Tensor right = torch::randn({kSize, kSize}).to(type);
    torch::Tensor product = torch::mm(left, right);
    double best = 0;
    const Clock::time_point end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    do {
        const Clock::time_point began = Clock::now();
        torch::mm_out(product, left, right);
        best = std::max(best, kOperations / std::chrono::duration<double>(Clock::now() - began).count());
    } while (Clock::now() < end);
    return best;
}

const char* resolved_dtype_name(Dtype dtype) {
    return to_string(models::resolve_dtype(dtype, torch::kCPU));
}

}  // namespace distilld::bench
