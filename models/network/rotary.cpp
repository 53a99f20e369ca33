#include "models/network/rotary.hpp"

#include <torch/autograd.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>
#include <variant>
#include <vector>

#include "models/kernels/rotation.hpp"

namespace distilld::models {
namespace {

/// 1 / wavelength for each pair of dimensions, and the factor of cos and sin; computed in fp32, as in transformers.
struct Frequencies {
    torch::Tensor inverse;  ///< [head_dim / 2]
    double attention_factor = 1.0;
};

Frequencies scaled(const LinearRopeScaling& scaling, const torch::Tensor& wavelengths, const DecoderConfig&) {
    return {torch::reciprocal(wavelengths) / scaling.factor};
}

/// Stretches long wavelengths by `factor`, keeps short ones and interpolates those between.
Frequencies scaled(const Llama3RopeScaling& scaling, const torch::Tensor& wavelengths, const DecoderConfig&) {
    const auto plain = torch::reciprocal(wavelengths);
    const auto old_length = static_cast<double>(scaling.original_max_position_embeddings);
    const double low_wavelength = old_length / scaling.low_freq_factor;
    const double high_wavelength = old_length / scaling.high_freq_factor;
    const auto wavelength = (2.0 * std::numbers::pi) / plain;
    const auto stretched = torch::where(wavelength > low_wavelength, plain / scaling.factor, plain);
    const auto smooth =
        (old_length / wavelength - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor);
    const auto smoothed = (1 - smooth) * stretched / scaling.factor + smooth * stretched;
    const auto between = torch::logical_and(wavelength >= high_wavelength, wavelength <= low_wavelength);
    return {torch::where(between, smoothed, stretched)};
}

double yarn_attention(double scale, double mscale) {
    return scale <= 1.0 ? 1.0 : 0.1 * mscale * std::log(scale) + 1.0;
}

double attention_factor(const YarnRopeScaling& scaling) {
    if (scaling.attention_factor) {
        return *scaling.attention_factor;
    }
    const double above = scaling.mscale.value_or(0);
    const double below = scaling.mscale_all_dim.value_or(0);
    if (above != 0 && below != 0) {
        return yarn_attention(scaling.factor, above) / yarn_attention(scaling.factor, below);
    }
    return yarn_attention(scaling.factor, 1.0);
}

/// Keeps dimensions that turn more than beta_fast times within the old length, stretches those that turn less than
/// beta_slow times, and interpolates those between (arXiv 2309.00071, eq. 23).
Frequencies scaled(const YarnRopeScaling& scaling, const torch::Tensor& wavelengths, const DecoderConfig& config) {
    const auto size = static_cast<double>(config.head_dim);
    const auto old_length = static_cast<double>(scaling.original_max_position_embeddings);
    const auto dimension_of = [&](double turns) {
        return size * std::log(old_length / (turns * 2.0 * std::numbers::pi)) / (2.0 * std::log(config.rope_theta));
    };
    // As in transformers, which treats 0 as absent.
    const auto turns_of = [](const std::optional<double>& given, double otherwise) {
        return given && *given != 0 ? *given : otherwise;
    };
    double low = dimension_of(turns_of(scaling.beta_fast, 32.0));
    double high = dimension_of(turns_of(scaling.beta_slow, 1.0));
    if (scaling.truncate.value_or(true)) {
        low = std::floor(low);
        high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, size - 1.0);
    if (low == high) {
        high += 0.001;
    }
    const auto numbers = torch::arange(config.head_dim / 2, torch::kFloat);
    const auto kept = 1 - torch::clamp((numbers - low) / (high - low), 0, 1);
    const auto plain = torch::reciprocal(wavelengths);
    const auto stretched = torch::reciprocal(scaling.factor * wavelengths);
    return {stretched * (1 - kept) + plain * kept, attention_factor(scaling)};
}

Frequencies frequencies_of(const DecoderConfig& config) {
    const torch::NoGradGuard no_grad;
    const auto steps =
        torch::arange(0, config.head_dim, 2, torch::kInt64).to(torch::kFloat) / static_cast<double>(config.head_dim);
    const auto wavelengths = torch::pow(torch::Scalar(config.rope_theta), steps);
    if (!config.rope_scaling) {
        return {torch::reciprocal(wavelengths)};
    }
    return std::visit([&](const auto& scaling) { return scaled(scaling, wavelengths, config); }, *config.rope_scaling);
}

class Rotated : public torch::autograd::Function<Rotated> {
  public:
    static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& input,
                                 const torch::Tensor& cos, const torch::Tensor& sin) {
        context->save_for_backward({cos, sin});
        return kernels::rotated(input, cos, sin, 1);
    }

    static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                   torch::autograd::variable_list gradients) {
        const auto angles = context->get_saved_variables();
        return {kernels::rotated(gradients[0].contiguous(), angles[0], angles[1], -1), torch::Tensor(),
                torch::Tensor()};
    }
};

/// What the kernel computes, in libtorch's operations; for devices without the kernel.
torch::Tensor rotated_in_steps(const torch::Tensor& input, const RotaryPositions::Angles& angles) {
    // The same arithmetic as x·cos + rotate_half(x)·sin.
    const auto cos = angles.cos.unsqueeze(1);
    const auto sin = angles.sin.unsqueeze(1);
    const auto halves = input.chunk(2, -1);
    const auto& first = halves[0];
    const auto& second = halves[1];
    return torch::cat({first * cos - second * sin, second * cos + first * sin}, -1);
}

}  // namespace

RotaryPositions::RotaryPositions(const DecoderConfig& config, torch::ScalarType type, const torch::Device& device)
    : type_(type), device_(device) {
    const Frequencies frequencies = frequencies_of(config);
    inverse_frequencies_ = frequencies.inverse;
    attention_factor_ = frequencies.attention_factor;
}

RotaryPositions::Angles RotaryPositions::angles(std::int64_t columns) {
    const std::lock_guard lock(*mutex_);
    if (!kept_.cos.defined() || kept_.cos.size(0) < columns) {
        const torch::NoGradGuard no_grad;
        // Kept beyond this call: tables made in inference mode could not serve a later training step.
        const c10::InferenceMode normal_mode(false);
        // In blocks, so that no bit depends on the length of the first rows.
        constexpr std::int64_t kBlock = 1024;
        std::vector<torch::Tensor> cosines;
        std::vector<torch::Tensor> sines;
        for (std::int64_t begin = 0; begin < columns; begin += kBlock) {
            const auto positions = torch::arange(begin, begin + kBlock, torch::kInt64).to(torch::kFloat);
            const auto angles = torch::outer(positions, inverse_frequencies_);
            cosines.push_back(angles.cos() * attention_factor_);
            sines.push_back(angles.sin() * attention_factor_);
        }
        kept_.cos = torch::cat(cosines).to(device_, type_);
        kept_.sin = torch::cat(sines).to(device_, type_);
    }
    return {kept_.cos.narrow(0, 0, columns), kept_.sin.narrow(0, 0, columns)};
}

RotaryPositions::Angles RotaryPositions::angles(const DocumentGroups& documents) {
    std::int64_t longest = 0;
    for (const DocumentGroup& group : documents) {
        longest = std::max(longest, group.length);
    }
    return angles(numbers_in(documents, device_), longest);
}

RotaryPositions::Angles RotaryPositions::angles(const torch::Tensor& positions, std::int64_t columns) {
    const Angles table = angles(columns);
    const torch::NoGradGuard no_grad;
    return {table.cos.index_select(0, positions), table.sin.index_select(0, positions)};
}

torch::Tensor RotaryPositions::rotate(const torch::Tensor& input, const Angles& angles) {
    if (!input.is_cpu()) {
        return rotated_in_steps(input, angles);
    }
    const torch::Tensor heads = input.contiguous();
    return torch::GradMode::is_enabled() ? Rotated::apply(heads, angles.cos, angles.sin)
                                         : kernels::rotated(heads, angles.cos, angles.sin, 1);
}

}  // namespace distilld::models
