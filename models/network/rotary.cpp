#include "models/network/rotary.hpp"

#include <numbers>

namespace distilld::models {
namespace {

/// 1 / wavelength for each pair of dimensions, as transformers computes it: fp32 throughout.
torch::Tensor inverse_frequencies(const DecoderConfig& config) {
    const torch::NoGradGuard no_grad;
    const auto steps =
        torch::arange(0, config.head_dim, 2, torch::kInt64).to(torch::kFloat) / static_cast<double>(config.head_dim);
    const auto plain = torch::reciprocal(torch::pow(torch::Scalar(config.rope_theta), steps));
    if (!config.rope_scaling) {
        return plain;
    }
    // Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between interpolated.
    const auto& scaling = *config.rope_scaling;
    const auto old_length = static_cast<double>(scaling.original_max_position_embeddings);
    const double low_wavelength = old_length / scaling.low_freq_factor;
    const double high_wavelength = old_length / scaling.high_freq_factor;
    const auto wavelength = (2.0 * std::numbers::pi) / plain;
    const auto stretched = torch::where(wavelength > low_wavelength, plain / scaling.factor, plain);
    const auto smooth =
        (old_length / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
    const auto smoothed = (1 - smooth) * stretched / scaling.factor + smooth * stretched;
    const auto between = torch::logical_and(wavelength >= high_wavelength, wavelength <= low_wavelength);
    return torch::where(between, smoothed, stretched);
}

}  // namespace

RotaryPositions::RotaryPositions(const DecoderConfig& config, torch::ScalarType type, const torch::Device& device)
    : inverse_frequencies_(inverse_frequencies(config)), type_(type), device_(device) {}

RotaryPositions::Angles RotaryPositions::angles(std::int64_t columns) {
    if (!kept_.cos.defined() || kept_.cos.size(0) < columns) {
        const torch::NoGradGuard no_grad;
        // Kept beyond this call: made in inference mode, they could not serve a training step later.
        const c10::InferenceMode normal_mode(false);
        const auto positions = torch::arange(columns, torch::kInt64).to(torch::kFloat);
        const auto angles = torch::outer(positions, inverse_frequencies_);
        kept_.cos = angles.cos().to(device_, type_);
        kept_.sin = angles.sin().to(device_, type_);
    }
    return {kept_.cos.narrow(0, 0, columns), kept_.sin.narrow(0, 0, columns)};
}

torch::Tensor RotaryPositions::rotate(const torch::Tensor& input, const Angles& angles) {
    // The same arithmetic as x·cos + rotate_half(x)·sin.
    const auto halves = input.chunk(2, -1);
    const auto& first = halves[0];
    const auto& second = halves[1];
    return torch::cat({first * angles.cos - second * angles.sin, second * angles.cos + first * angles.sin}, -1);
}

}  // namespace distilld::models
